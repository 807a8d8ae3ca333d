// RUN: pullback-opt %s --lower-custom-derivatives | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NEXT: call @f(%arg0)
// CHECK-NOT: @f.jvp

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

func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.abs %x : tensor<f32>
  return %0, %dx : tensor<f32>, tensor<f32>
}
