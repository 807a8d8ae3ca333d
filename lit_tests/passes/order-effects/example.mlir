// RUN: pullback-opt %s --order-effects | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[T0:.*]] = stablehlo.create_token
// CHECK: %[[T1:.*]] = call @print(%[[T0]], %arg0)
// CHECK: call @print(%[[T1]], %arg1)

func.func @main(%x: tensor<f32>, %y: tensor<f32>) {
  %t = stablehlo.create_token : !stablehlo.token
  %0 = call @print(%t, %x) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  %1 = call @print(%t, %y) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  return
}

func.func private @print(%t: !stablehlo.token, %x: tensor<f32>) -> !stablehlo.token attributes {pullback.ordered} {
  %0 = stablehlo.custom_call @print(%t, %x) {has_side_effect = true} : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  return %0 : !stablehlo.token
}
