// RUN: pullback-opt %s | filecheck %s
// RUN: pullback-opt %s -stablehlo-legalize-quant-to-math -vjp | filecheck %s --check-prefix=MATH
// RUN: not pullback-opt %s -vjp 2>&1 | filecheck %s --check-prefix=VJP
// RUN: not pullback derive %s --vjp 2>&1 | filecheck %s --check-prefix=LOAD

// Passes work on quantized types. JAX does not run them, so a program has none.

// CHECK: stablehlo.uniform_quantize %arg0 : (tensor<3xf32>) -> tensor<3x!quant.uniform<i8:f32, 5.000000e-01>>
// MATH-NOT: quant.uniform
// MATH: stablehlo.round_nearest_even
// VJP: quantized.mlir:{{[0-9]+}}:8: error: no derivative rule for `stablehlo.uniform_quantize`
// LOAD: it has types of an unregistered dialect, quant
// LOAD-NOT: allow-unregistered-dialect
// LOAD: do: write it without quantized types{{.*}}--stablehlo-legalize-quant-to-math
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %q = stablehlo.uniform_quantize %x : (tensor<3xf32>) -> tensor<3x!quant.uniform<i8:f32, 0.5>>
  %0 = stablehlo.uniform_dequantize %q : (tensor<3x!quant.uniform<i8:f32, 0.5>>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
