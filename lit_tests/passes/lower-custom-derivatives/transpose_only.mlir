// A map that is known by its transpose only: pulling back calls that, and no linear_call; pushing
// forward leaves the question to who needs the value, which is an error.
// RUN: pullback-opt %s --transpose | filecheck %s
// RUN: pullback-opt %s --jvp | filecheck %s --check-prefix=JVP
// RUN: not pullback-opt %s --lower-custom-derivatives 2>&1 | filecheck %s --check-prefix=ERROR

// CHECK-LABEL: func.func public @main
// CHECK-NOT: composite
// CHECK: %[[CT:.*]] = stablehlo.minimum %{{.*}}, %arg0
// CHECK: return %[[CT]]

// JVP: stablehlo.composite "pullback.linear_call" %arg0 {{.*}}transpose_only = "its backward
// JVP: stablehlo.composite "pullback.linear_call" %arg1 {{.*}}transpose_only = "its backward

// ERROR: no jvp rule for a custom_vjp function: its backward rule clips
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.linear_call" %x {
    composite_attributes = {num_residuals = 0 : i64, transpose = @clip, transpose_only = "its backward rule clips"}, decomposition = @unknown
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @clip(%ct: tensor<f32>) -> tensor<f32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.minimum %one, %ct : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @unknown(%x: tensor<f32>) -> tensor<f32> {
  %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
  %0 = stablehlo.multiply %x, %nan : tensor<f32>
  return %0 : tensor<f32>
}
