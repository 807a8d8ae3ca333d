// Attributes of arguments stay with them; results, and the aliases of results, are others.
// RUN: pullback-opt %s -p "transpose{wrt=0}" | filecheck %s

func.func @main(
    %x: tensor<6xf64> {jax.buffer_donor = true}, %w: tensor<3xf64> {jax.arg_info = "w"},
    %i: tensor<i32> {jax.arg_info = "i", tf.aliasing_output = 1 : i32}
) -> (tensor<3xf64> {jax.result_info = "y"}, tensor<i32> {jax.result_info = "i"}) {
  %part = stablehlo.dynamic_slice %x, %i, sizes = [3] : (tensor<6xf64>, tensor<i32>) -> tensor<3xf64>
  %y = stablehlo.multiply %part, %w : tensor<3xf64>
  return %y, %i : tensor<3xf64>, tensor<i32>
}

// CHECK-LABEL: func.func public @main(
// CHECK-SAME: %{{.*}}: tensor<3xf64> {jax.arg_info = "w"}, %{{.*}}: tensor<i32> {jax.arg_info = "i"},
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<3xf64>) -> tensor<6xf64> {
