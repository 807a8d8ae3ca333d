// The verifier finds an op in a nested region, and reports the line of the op.
// RUN: pullback-opt %s --no-verify-each --verify-custom-derivatives --verify-diagnostics

func.func @main(%n: tensor<i32>, %x: tensor<f32>) -> tensor<f32> {
  %0:2 = stablehlo.while(%i = %n, %y = %x) : tensor<i32>, tensor<f32> cond {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %more = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // expected-error @+1 {{custom_jvp_call_c3: `jvp` names @f.jvp, which the module does not have}}
    %z = stablehlo.composite "pullback.custom_jvp_call" %y {
      composite_attributes = {jvp = @f.jvp}, decomposition = @f
    } : (tensor<f32>) -> tensor<f32>
    stablehlo.return %i, %z : tensor<i32>, tensor<f32>
  }
  return %0#1 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
