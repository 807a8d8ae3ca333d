// RUN: pullback-opt %s --jet='order=2' | filecheck %s

// The rule, which says 3 t, is taken in each order.
// CHECK-LABEL: func.func @main
// CHECK: %[[THREE:.*]] = stablehlo.constant dense<3.0
// CHECK: stablehlo.multiply %arg1, %[[THREE]]

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.jvp(%x: tensor<f32>, %t: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %u = stablehlo.multiply %t, %three : tensor<f32>
  return %x, %u : tensor<f32>, tensor<f32>
}
