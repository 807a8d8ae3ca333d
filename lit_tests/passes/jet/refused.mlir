// RUN: not pullback-opt %s --jet='order=2' 2>&1 | filecheck %s
// RUN: not pullback-opt %s --jet='order=0' 2>&1 | filecheck %s --check-prefix=ORDER

// CHECK: no derivative rule for `stablehlo.custom_call`
// ORDER: a Taylor series of order 0

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @unknown(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
