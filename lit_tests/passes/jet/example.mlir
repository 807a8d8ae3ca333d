// RUN: pullback-opt %s --jet='order=2 factorial-scaled=false' | filecheck %s

// exp(x) refers to its own coefficients: y1 = x1 y, y2 = (x1 y1 + 2 x2 y) / 2.
// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.*]]: tensor<f32>, %[[X1:.*]]: tensor<f32>, %[[X2:.*]]: tensor<f32>)
// CHECK: %[[Y:.*]] = stablehlo.exponential %[[X]]
// CHECK-NOT: stablehlo.exponential
// CHECK: %[[Y1:.*]] = stablehlo.multiply %[[X1]], %[[Y]]
// CHECK: %[[A:.*]] = stablehlo.multiply %[[X1]], %[[Y1]]
// CHECK: %[[D:.*]] = stablehlo.multiply %[[X2]], %[[TWO:.*]] : tensor<f32>
// CHECK: %[[B:.*]] = stablehlo.multiply %[[D]], %[[Y]]
// CHECK: %[[S:.*]] = stablehlo.add %[[A]], %[[B]]
// CHECK: %[[Y2:.*]] = stablehlo.multiply %[[S]],
// CHECK: return %[[Y]], %[[Y1]], %[[Y2]]

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.exponential %x : tensor<f32>
  return %0 : tensor<f32>
}
