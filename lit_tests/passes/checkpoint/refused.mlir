// RUN: not pullback-opt %s --checkpoint=wrt=1 2>&1 | filecheck %s
// RUN: not pullback-opt %s --checkpoint=entry=other 2>&1 | filecheck %s --check-prefix=ENTRY
// RUN: not pullback-opt %s --checkpoint=bytes=-1 2>&1 | filecheck %s --check-prefix=NEGATIVE
// RUN: not pullback-opt %s --checkpoint=bytes=8MB 2>&1 | filecheck %s --check-prefix=BYTES

// CHECK: argument of `@main` at position 1 has type tensor<i32>, which has no derivative
// ENTRY: no function `@other` in the module
// NEGATIVE: the pass `checkpoint` got bytes=-1
// BYTES: option 'bytes' takes an integer, and got '8MB'

func.func @main(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {
  return %x : tensor<f32>
}
