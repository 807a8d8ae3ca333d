// RUN: pullback-opt %s --erase-dead | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NEXT: return %arg0
// CHECK-NOT: func.func

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %x : tensor<f32>
}

func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.abs %x : tensor<f32>
  return %0 : tensor<f32>
}

func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.abs %x : tensor<f32>
  return %0, %dx : tensor<f32>, tensor<f32>
}
