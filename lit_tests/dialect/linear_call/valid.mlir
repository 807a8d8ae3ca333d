// RUN: pullback-opt %s | filecheck %s
// RUN: pullback-opt %s --emit-bytecode | pullback-opt | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "pullback.linear_call" %arg0, %arg1
// CHECK-SAME: num_residuals = 1 : i64, transpose = @l.t
func.func @main(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.multiply %r, %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l.t(%r: tensor<f32>, %ct: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.multiply %r, %ct : tensor<f32>
  return %0 : tensor<f32>
}

// The transpose gives a cotangent of another element type than its operand's; so the transposed
// call has a transpose that takes another one than that of its result.
// CHECK-LABEL: func.func @wide
// CHECK: stablehlo.composite "pullback.linear_call" %arg0
// CHECK-SAME: transpose = @w.t, "transpose[f32]" = @w.t.f32
// CHECK: stablehlo.composite "pullback.linear_call"
// CHECK-SAME: transpose = @w
func.func @wide(%x: tensor<f16>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.linear_call" %x {
    composite_attributes = {num_residuals = 0 : i64, transpose = @w.t, "transpose[f32]" = @w.t.f32},
    decomposition = @w
  } : (tensor<f16>) -> tensor<f16>
  %1 = stablehlo.composite "pullback.linear_call" %0 {
    composite_attributes = {num_residuals = 0 : i64, transpose = @w}, decomposition = @w.t
  } : (tensor<f16>) -> tensor<f32>
  return %1 : tensor<f32>
}
func.func private @w(%x: tensor<f16>) -> tensor<f16> {
  return %x : tensor<f16>
}
func.func private @w.t(%ct: tensor<f16>) -> tensor<f32> {
  %0 = stablehlo.convert %ct : (tensor<f16>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @w.t.f32(%ct: tensor<f32>) -> tensor<f32> {
  return %ct : tensor<f32>
}
