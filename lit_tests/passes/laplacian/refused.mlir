// RUN: not pullback-opt %s --laplacian='entry=main' 2>&1 | filecheck %s
// RUN: not pullback-opt %s --laplacian='entry=of_complex' 2>&1 | filecheck %s --check-prefix=COMPLEX
// RUN: not pullback-opt %s --laplacian='entry=main wrt=1' 2>&1 | filecheck %s --check-prefix=INTEGER

// CHECK: no derivative rule for `stablehlo.custom_call`
// COMPLEX: argument of `@of_complex` at position 0 has type tensor<complex<f32>>, by which there is no Laplacian
// INTEGER: argument of `@main` at position 1 has type tensor<i32>, which has no derivative

func.func @main(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @unknown(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func @of_complex(%x: tensor<complex<f32>>) -> tensor<f32> {
  %0 = stablehlo.abs %x : (tensor<complex<f32>>) -> tensor<f32>
  return %0 : tensor<f32>
}
