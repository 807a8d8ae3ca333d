// Devices exchange values once for the value, and tangents once for the linear map, also in a loop.
// RUN: pullback-opt %s --linearize | filecheck %s

// CHECK-LABEL: func.func public @main(
// CHECK: "stablehlo.all_gather"(%arg0)
// CHECK-NOT: stablehlo.all_gather
// CHECK: stablehlo.while
// CHECK: "stablehlo.all_gather"
// CHECK-NOT: stablehlo.all_gather
// CHECK-LABEL: func.func public @main.linear(
// CHECK-NOT: stablehlo.reduce_scatter
// CHECK: "stablehlo.all_gather"
// CHECK-NOT: stablehlo.reduce_scatter
// CHECK-NOT: stablehlo.all_gather
// CHECK: stablehlo.while
// CHECK-NOT: stablehlo.reduce_scatter
// CHECK: "stablehlo.all_gather"
// CHECK-NOT: stablehlo.reduce_scatter
// CHECK-NOT: stablehlo.all_gather
// CHECK: return
func.func public @main(%x: tensor<3xf64>) -> tensor<6xf64> {
  %0 = "stablehlo.all_gather"(%x) {
    all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>
  } : (tensor<3xf64>) -> tensor<6xf64>
  %1 = stablehlo.sine %0 : tensor<6xf64>
  %start = stablehlo.constant dense<0> : tensor<i32>
  %end = stablehlo.constant dense<4> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %2:2 = stablehlo.while(%i = %start, %y = %1) : tensor<i32>, tensor<6xf64>
  cond {
    %3 = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %3 : tensor<i1>
  } do {
    %3 = stablehlo.slice %y [0:3] : (tensor<6xf64>) -> tensor<3xf64>
    %4 = "stablehlo.all_gather"(%3) {
      all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>
    } : (tensor<3xf64>) -> tensor<6xf64>
    %5 = stablehlo.cosine %4 : tensor<6xf64>
    %6 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %6, %5 : tensor<i32>, tensor<6xf64>
  }
  return %2#1 : tensor<6xf64>
}
