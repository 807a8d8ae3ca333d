// RUN: not pullback-opt %s --verify-custom-derivatives 2>&1 | filecheck %s

// CHECK: error: custom_jvp_call_c6

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.abs %x : tensor<f32>
  return %0 : tensor<f32>
}

func.func private @f.jvp(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.abs %x : tensor<f32>
  return %0, %0 : tensor<f32>, tensor<f32>
}
