// All windows are the first one where indices have no components. Of several updates at such
// indices XLA applies one only, so the scatter gets indices with a component, of zeros.
// RUN: pullback-opt %s -p "vjp{entry=f},canonicalize" | filecheck %s

func.func @f(%x: tensor<2xf64>, %i: tensor<3x0xi32>) -> tensor<3xf64> {
  %0 = "stablehlo.gather"(%x, %i) {slice_sizes = array<i64: 1>,
    dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], index_vector_dim = 1>}
    : (tensor<2xf64>, tensor<3x0xi32>) -> tensor<3xf64>
  return %0 : tensor<3xf64>
}

// CHECK-LABEL: func.func @f
// CHECK-SAME: (%[[X:.*]]: tensor<2xf64>, %[[I:.*]]: tensor<3x0xi32>, %[[CT:.*]]: tensor<3xf64>)
// CHECK: %[[PLACES:.*]] = stablehlo.constant dense<0> : tensor<3x1xi32>
// CHECK: %[[SCATTER:.*]] = "stablehlo.scatter"(%{{.*}}, %[[PLACES]], %[[CT]])
// CHECK-SAME: scatter_dims_to_operand_dims = [1]
// CHECK: %[[TOTAL:.*]] = stablehlo.reshape %[[SCATTER]] : (tensor<2x1xf64>) -> tensor<2xf64>
// CHECK: return %{{.*}}, %[[TOTAL]]
