// RUN: not pullback-opt %s --stage-rules 2>&1 | filecheck %s

// CHECK: error: no derivative rule for key 'softplus#0'

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {rule = "softplus#0"}, decomposition = @softplus
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

func.func private @softplus(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.exponential %x : tensor<f32>
  %1 = stablehlo.log_plus_one %0 : tensor<f32>
  return %1 : tensor<f32>
}
