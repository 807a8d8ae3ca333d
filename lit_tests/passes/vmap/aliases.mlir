// An argument that all items share is no alias of a result that each item has.
// RUN: pullback-opt %s -p "vmap{entry=main size=2 in-axes=0,none}" | filecheck %s

func.func @main(
    %x: tensor<3xf64> {tf.aliasing_output = 0 : i32}, %w: tensor<3xf64> {tf.aliasing_output = 1 : i32}
) -> (tensor<3xf64>, tensor<3xf64>) {
  %y = stablehlo.add %x, %w : tensor<3xf64>
  %z = stablehlo.multiply %x, %w : tensor<3xf64>
  return %y, %z : tensor<3xf64>, tensor<3xf64>
}

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<2x3xf64> {tf.aliasing_output = 0 : i32},
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<3xf64>) -> (tensor<2x3xf64>, tensor<2x3xf64>) {
