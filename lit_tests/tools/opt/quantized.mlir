// RUN: not pullback-opt %s 2>&1 | filecheck %s
// RUN: not pullback derive %s --vjp 2>&1 | filecheck %s

// A dialect that jaxlib lacks: MLIR names a flag of its own tools, which is not there.

// CHECK: type created with unregistered dialect
// CHECK-NOT: allow-unregistered-dialect
// CHECK: do: write it without quantized types
func.func @main(%x: tensor<3x!quant.uniform<i8:f32, 0.5>>) -> tensor<3xf32> {
  %0 = stablehlo.uniform_dequantize %x : (tensor<3x!quant.uniform<i8:f32, 0.5>>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
