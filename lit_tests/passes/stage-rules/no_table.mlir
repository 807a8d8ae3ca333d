// A module from a file has no rule table: what is staged passes, what is not is an error.
// RUN: pullback-opt %s --stage-rules --split-input-file --verify-diagnostics

func.func @staged(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.jvp(tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)

// -----

// expected-error @unknown {{no derivative rule for key 'f#0' with mask '1': this module came without a rule table}}
func.func @not_staged(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {rule = "f#0"}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
