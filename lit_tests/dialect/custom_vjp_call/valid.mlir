// RUN: pullback-opt %s | filecheck %s
// RUN: pullback-opt %s --emit-bytecode | pullback-opt | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "pullback.custom_vjp_call" %arg0, %arg1
// CHECK-SAME: bwd = @f.bwd, fwd = @f.fwd, jvp = @f.jvp
func.func @main(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x, %n {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd, jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.fwd(%x: tensor<f32>, %n: tensor<i32>)
    -> (tensor<f32>, tensor<f32>, tensor<i32>) {
  return %x, %x, %n : tensor<f32>, tensor<f32>, tensor<i32>
}
func.func private @f.bwd(%r: tensor<f32>, %n: tensor<i32>, %ct: tensor<f32>) -> tensor<f32> {
  return %ct : tensor<f32>
}
func.func private @f.jvp(%x: tensor<f32>, %n: tensor<i32>, %dx: tensor<f32>)
    -> (tensor<f32>, tensor<f32>) {
  return %x, %dx : tensor<f32>, tensor<f32>
}

// Cotangents of other element types than the argument's, and than the result's.
// CHECK-LABEL: func.func @wide
// CHECK: stablehlo.composite "pullback.custom_vjp_call" %arg0
// CHECK-SAME: bwd = @g.bwd, "bwd[f32]" = @g.bwd.f32, fwd = @g.fwd
func.func @wide(%x: tensor<f16>) -> tensor<f16> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {fwd = @g.fwd, bwd = @g.bwd, "bwd[f32]" = @g.bwd.f32}, decomposition = @g
  } : (tensor<f16>) -> tensor<f16>
  return %0 : tensor<f16>
}
func.func private @g(%x: tensor<f16>) -> tensor<f16> {
  return %x : tensor<f16>
}
func.func private @g.fwd(%x: tensor<f16>) -> tensor<f16> {
  return %x : tensor<f16>
}
func.func private @g.bwd(%ct: tensor<f16>) -> tensor<f32> {
  %0 = stablehlo.convert %ct : (tensor<f16>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @g.bwd.f32(%ct: tensor<f32>) -> tensor<f32> {
  return %ct : tensor<f32>
}
