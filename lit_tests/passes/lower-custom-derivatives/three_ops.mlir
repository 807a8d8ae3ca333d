// Each op becomes a call of its decomposition; no rule function is left, rules of rules included.
// RUN: pullback-opt %s --lower-custom-derivatives | filecheck %s
// RUN: pullback-opt %s --lower-custom-derivatives | filecheck %s --check-prefix=GONE

// GONE-NOT: stablehlo.composite
// GONE-NOT: @f.
// GONE-NOT: @l.t

// CHECK-LABEL: func.func @main
// CHECK: %[[J:.*]] = call @f(%arg0) : (tensor<f32>) -> tensor<f32>
// CHECK: %[[V:.*]] = call @f(%[[J]])
// CHECK: %[[L:.*]] = call @l(%arg1, %[[V]])
// CHECK: return %[[L]]
func.func @main(%x: tensor<f32>, %r: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.composite "pullback.custom_vjp_call" %0 {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  %2 = stablehlo.composite "pullback.linear_call" %r, %1 {
    composite_attributes = {num_residuals = 1 : i64, transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}
// CHECK: func.func private @f(
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
// CHECK: func.func private @l(
func.func private @l(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.multiply %r, %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l.t(%r: tensor<f32>, %ct: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.multiply %r, %ct : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0, %dx : tensor<f32>, tensor<f32>
}
func.func private @f.fwd(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.bwd(%ct: tensor<f32>) -> tensor<f32> {
  return %ct : tensor<f32>
}
