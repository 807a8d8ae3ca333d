// A cotangent goes to the first largest element of its window: by one slice for each place in it.
// RUN: pullback-opt %s --simplify | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.*]]: tensor<5xf32>, %[[CT:.*]]: tensor<2xf32>)
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK: %[[A:.*]] = stablehlo.slice %[[X]] [0:3:2]
// CHECK: %[[B:.*]] = stablehlo.slice %[[X]] [1:4:2]
// CHECK: %[[STAYS:.*]] = stablehlo.compare GE, %[[A]], %[[B]], FLOAT
// CHECK: %[[WHICH:.*]] = stablehlo.select %[[STAYS]]
// CHECK: %[[IS_FIRST:.*]] = stablehlo.compare EQ, %[[WHICH]]
// CHECK: %[[FIRST:.*]] = stablehlo.select %[[IS_FIRST]], %[[CT]]
// CHECK: %[[FIRSTS:.*]] = stablehlo.pad %[[FIRST]], %[[ZERO]], low = [0], high = [2], interior = [1]
// CHECK: %[[IS_SECOND:.*]] = stablehlo.compare EQ, %[[WHICH]]
// CHECK: %[[SECOND:.*]] = stablehlo.select %[[IS_SECOND]], %[[CT]]
// CHECK: %[[SECONDS:.*]] = stablehlo.pad %[[SECOND]], %[[ZERO]], low = [1], high = [1], interior = [1]
// CHECK: %[[SUM:.*]] = stablehlo.add %[[FIRSTS]], %[[SECONDS]]
// CHECK: return %[[SUM]]

func.func @main(%x: tensor<5xf32>, %ct: tensor<2xf32>) -> tensor<5xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %ct, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}
    : (tensor<5xf32>, tensor<2xf32>, tensor<f32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}
