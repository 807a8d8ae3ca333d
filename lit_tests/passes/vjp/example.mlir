// RUN: pullback-opt %s --vjp | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.*]]: tensor<f32>, %[[Y:.*]]: tensor<f32>, %[[CT:.*]]: tensor<f32>)
// CHECK: %[[S:.*]] = stablehlo.sine %[[X]]
// CHECK: %[[C:.*]] = stablehlo.cosine %[[X]]
// CHECK: return

func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  %1 = stablehlo.multiply %0, %y : tensor<f32>
  return %1 : tensor<f32>
}
