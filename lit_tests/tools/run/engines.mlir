// The same numbers from XLA and from the interpreter.
// RUN: pullback run %s --random 0 --compare --tolerance 1e-6 | filecheck %s --check-prefix=COMPARE
// RUN: pullback run %s --random 0 --interpret | filecheck %s --check-prefix=INTERPRET
// RUN: not pullback run %s 2>&1 | filecheck %s --check-prefix=NOVALUES

// COMPARE: result 0: f32[2]
// COMPARE-NEXT: xla [{{.*}}]
// COMPARE-NEXT: interpreter [{{.*}}]
// COMPARE-NEXT: difference
// COMPARE: largest difference of xla and interpreter: {{0$|.*e-[01][0-9]}}

// INTERPRET: result 0: f32[2]
// INTERPRET-NOT: xla

// NOVALUES: there are no values for the 1 argument
// NOVALUES-NEXT: do: give --input FILE.npy for each of them, or --random SEED

func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {composite_attributes = {jvp = @f.jvp}, decomposition = @f} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.sine %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @f.jvp(%x: tensor<2xf32>, %dx: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = stablehlo.sine %x : tensor<2xf32>
  %1 = stablehlo.cosine %x : tensor<2xf32>
  %2 = stablehlo.multiply %1, %dx : tensor<2xf32>
  return %0, %2 : tensor<2xf32>, tensor<2xf32>
}
