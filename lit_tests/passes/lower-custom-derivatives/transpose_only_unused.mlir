// Where nothing needs the value of a map that is known by its transpose only, the op goes.
// RUN: pullback-opt %s --lower-custom-derivatives | filecheck %s

// CHECK-NOT: composite
// CHECK-NOT: @unknown
// CHECK: return %arg0 : tensor<f32>
// CHECK-NOT: @unknown
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.linear_call" %x {
    composite_attributes = {num_residuals = 0 : i64, transpose_only = "it clips"}, decomposition = @unknown
  } : (tensor<f32>) -> tensor<f32>
  return %x : tensor<f32>
}
func.func private @unknown(%x: tensor<f32>) -> tensor<f32> {
  %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
  %0 = stablehlo.multiply %x, %nan : tensor<f32>
  return %0 : tensor<f32>
}
