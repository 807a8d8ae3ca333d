// Functions that composites refer to stay, and calls inside of them are inlined too.
// RUN: pullback-opt %s --inline-calls | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: decomposition = @f
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
// CHECK-LABEL: func.func private @f(
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
// CHECK-LABEL: func.func private @f.jvp
// CHECK: %[[Y:.*]] = stablehlo.negate
// CHECK: return %[[Y]], %arg1
// CHECK-NOT: func.func
func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = call @negate(%x) : (tensor<f32>) -> tensor<f32>
  return %0, %dx : tensor<f32>, tensor<f32>
}
func.func private @negate(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  return %0 : tensor<f32>
}
