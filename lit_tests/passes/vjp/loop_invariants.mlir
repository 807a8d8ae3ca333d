// RUN: pullback-opt %s --vjp="wrt=0" | filecheck %s
// What no iteration changes is computed once, in front of the loop, and is not stacked.

// CHECK-LABEL: func.func @main
// CHECK: %[[K:.*]] = stablehlo.exponential %arg0
// CHECK-NOT: tensor<5x4x4xf32>
// CHECK: stablehlo.while
// CHECK: dot_general %[[K]]
// CHECK: stablehlo.while
// CHECK: dot_general {{.*}}%[[K]]
// CHECK-NOT: tensor<5x4x4xf32>
// CHECK: return
func.func @main(%w: tensor<4x4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %n = stablehlo.constant dense<5> : tensor<i32>
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %k = stablehlo.exponential %w : tensor<4x4xf32>
    %v = stablehlo.dot_general %k, %y, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %z = stablehlo.sine %v : tensor<4xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %z : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}
