// The cotangent of a weight is a sum of products over the iterations, that of the slices a product in
// each slot: the loop keeps what it carries and stacks for the others, which are products behind it.
// RUN: pullback-opt %s -p "vjp" | filecheck %s

func.func @main(%w: tensor<8x8xf64>, %xs: tensor<4x2x8xf64>) -> tensor<2x8xf64> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %h0 = stablehlo.constant dense<1.0> : tensor<2x8xf64>
  %0:2 = stablehlo.while(%i = %zero, %h = %h0) : tensor<i32>, tensor<2x8xf64>
  cond {
    %n = stablehlo.constant dense<4> : tensor<i32>
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %slot = stablehlo.dynamic_slice %xs, %i, %zero, %zero, sizes = [1, 2, 8] : (tensor<4x2x8xf64>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf64>
    %x = stablehlo.reshape %slot : (tensor<1x2x8xf64>) -> tensor<2x8xf64>
    %xw = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x8xf64>, tensor<8x8xf64>) -> tensor<2x8xf64>
    %hw = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<2x8xf64>, tensor<8x8xf64>) -> tensor<2x8xf64>
    %sum = stablehlo.add %hw, %xw : tensor<2x8xf64>
    %next = stablehlo.tanh %sum : tensor<2x8xf64>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %next : tensor<i32>, tensor<2x8xf64>
  }
  return %0#1 : tensor<2x8xf64>
}

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[W:.*]]: tensor<8x8xf64>, %[[XS:.*]]: tensor<4x2x8xf64>, %[[CT:.*]]: tensor<2x8xf64>)
// CHECK: %[[FORWARD:.*]]:4 = stablehlo.while
// CHECK: %[[BACK:.*]]:3 = stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %[[CT]], %[[STACK:.*]] = %{{.*}})
// CHECK: %[[PULLED:.*]] = stablehlo.dot_general %[[FACTOR:.*]], %[[W]], contracting_dims = [1] x [1]
// CHECK-NOT: dot_general
// CHECK: %[[SLOT:.*]] = stablehlo.reshape %[[FACTOR]]
// CHECK: %[[NEXT:.*]] = stablehlo.dynamic_update_slice %[[STACK]], %[[SLOT]],
// CHECK: stablehlo.return %{{.*}}, %[[PULLED]], %[[NEXT]]
// CHECK: stablehlo.dot_general %[[BACK]]#2, %[[W]], contracting_dims = [2] x [1]
// CHECK: %[[CT_XS:.*]] = stablehlo.reshape %{{.*}} : (tensor<4x1x2x8xf64>) -> tensor<4x2x8xf64>
// CHECK: %[[OF_XS:.*]] = stablehlo.dot_general %[[XS]], %[[BACK]]#2, contracting_dims = [0, 1] x [0, 1]
// CHECK: %[[OF_HS:.*]] = stablehlo.dot_general %[[FORWARD]]#3, %[[BACK]]#2, contracting_dims = [0, 1] x [0, 1]
// CHECK: %[[CT_W:.*]] = stablehlo.add %[[OF_XS]], %[[OF_HS]]
// CHECK: return %[[FORWARD]]#1, %[[CT_W]], %[[CT_XS]] :
