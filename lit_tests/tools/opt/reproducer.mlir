// RUN: rm -rf %t && mkdir %t
// RUN: pullback-opt -symbol-dce -mlir-generate-reproducer=%t/asked.mlir %s
// RUN: pullback-opt -run-reproducer -dump-pass-pipeline %t/asked.mlir 2>&1 | filecheck %s --check-prefix=ASKED
// RUN: not pullback-opt -cse -jvp -mlir-pass-pipeline-crash-reproducer=%t/crash.mlir %s 2>&1 | filecheck %s --check-prefix=CRASH
// RUN: not pullback-opt -run-reproducer %t/crash.mlir 2>&1 | filecheck %s --check-prefix=AGAIN
// RUN: not pullback-opt -cse -jvp %s 2>&1 | filecheck %s --check-prefix=UNASKED

// ASKED: builtin.module(symbol-dce)
// ASKED-NOT: @unused
// CRASH: reproduce with: pullback-opt {{.*}}crash.mlir '--pass-pipeline=builtin.module(cse,jvp)'
// AGAIN: error: no derivative rule for `stablehlo.rng`
// UNASKED-NOT: reproduce with
func.func @main(%x: tensor<f32>) -> tensor<3xf32> {
  %shape = stablehlo.constant dense<3> : tensor<1xi64>
  %0 = stablehlo.rng %x, %x, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func private @unused(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
