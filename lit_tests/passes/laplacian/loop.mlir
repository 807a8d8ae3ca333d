// RUN: pullback-opt %s --laplacian | filecheck %s

// A loop stays one loop, which carries the tangents and the Laplacian.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.while
// CHECK-SAME: tensor<i32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>
// CHECK-NOT: stablehlo.while

func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %count = stablehlo.constant dense<5> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<2xf32>
  cond {
    %2 = stablehlo.compare LT, %i, %count : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  } do {
    %2 = stablehlo.add %i, %one : tensor<i32>
    %3 = stablehlo.sine %y : tensor<2xf32>
    stablehlo.return %2, %3 : tensor<i32>, tensor<2xf32>
  }
  return %0#1 : tensor<2xf32>
}
