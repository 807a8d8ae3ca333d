// RUN: pullback-opt %s --split-input-file --verify-diagnostics

func.func @composite_c1(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{composite_c1: 'pullback.custom_jpv_call' is none of pullback.custom_jvp_call, pullback.custom_vjp_call, pullback.linear_call}}
  %0:2 = stablehlo.composite "pullback.custom_jpv_call" %x, %n, %y {
    composite_attributes = {rule = "f"}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
