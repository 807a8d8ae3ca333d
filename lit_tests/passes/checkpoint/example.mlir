// RUN: pullback-opt %s --checkpoint=bytes=100 | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.while
// CHECK: stablehlo.constant dense<10>
// CHECK: %[[FIRST:.*]] = stablehlo.multiply
// CHECK: %[[ROWS:.*]] = stablehlo.dynamic_slice %arg1, %[[FIRST]], sizes = [10]
// CHECK: func.call @block(%{{.*}}, %[[ROWS]])
// CHECK-LABEL: func.func private @block
// CHECK-SAME: pullback.checkpoint
// CHECK: stablehlo.while
// CHECK: stablehlo.dynamic_slice %arg1, %iterArg, sizes = [1]

func.func @main(%x: tensor<f32>, %rows: tensor<100xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %state = %x) : tensor<i32>, tensor<f32>
  cond {
    %end = stablehlo.constant dense<100> : tensor<i32>
    %1 = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %rows, %i, sizes = [1] : (tensor<100xf32>, tensor<i32>) -> tensor<1xf32>
    %row = stablehlo.reshape %1 : (tensor<1xf32>) -> tensor<f32>
    %2 = stablehlo.sine %state : tensor<f32>
    %3 = stablehlo.multiply %2, %row : tensor<f32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %4 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %4, %3 : tensor<i32>, tensor<f32>
  }
  return %0#1 : tensor<f32>
}
