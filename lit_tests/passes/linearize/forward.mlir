// RUN: pullback-opt %s --linearize | filecheck %s

// A rule for each mode: the map is that of forward mode, and its residuals are the arguments.
// CHECK: func.func public @main(%[[X:.*]]: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
// CHECK-NEXT: %[[Y:.*]] = stablehlo.composite "pullback.custom_vjp_call" %[[X]]
// CHECK-NEXT: return %[[Y]], %[[X]]
// CHECK: func.func public @main.linear(%{{.*}}: tensor<f32>, %[[DX:.*]]: tensor<f32>) -> tensor<f32> {
// CHECK: stablehlo.constant dense<5.000000e+00>
// CHECK-NOT: @f.bwd

func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {composite_attributes = {bwd = @f.bwd, fwd = @f.fwd, jvp = @f.jvp}, decomposition = @f} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %five = stablehlo.constant dense<5.0> : tensor<f32>
  %0 = stablehlo.multiply %five, %dx : tensor<f32>
  return %x, %0 : tensor<f32>, tensor<f32>
}
func.func private @f.fwd(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.bwd(%ct: tensor<f32>) -> tensor<f32> {
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %0 = stablehlo.multiply %three, %ct : tensor<f32>
  return %0 : tensor<f32>
}
