// RUN: pullback-opt %s --transpose='wrt=1' | filecheck %s

// CHECK-LABEL: func.func {{.*}}@main
// CHECK-SAME: (%[[A:.*]]: tensor<2x3xf32>, %[[CT:.*]]: tensor<2xf32>) -> tensor<3xf32>
// CHECK: stablehlo.dot_general

func.func @main(%a: tensor<2x3xf32>, %x: tensor<3xf32>) -> tensor<2xf32> {
  %0 = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
