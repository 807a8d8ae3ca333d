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
