// A gather clamps its indices; so does the scatter-add that transposes it.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5x4xf64>, %i: tensor<3x1xi32>) -> tensor<3x4xf64> {
  %0 = "stablehlo.gather"(%x, %i) {slice_sizes = array<i64: 1, 4>,
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>}
    : (tensor<5x4xf64>, tensor<3x1xi32>) -> tensor<3x4xf64>
  return %0 : tensor<3x4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5x4xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[DX:.*]]: tensor<5x4xf64>)
// JVP: %[[GATHER:.*]] = "stablehlo.gather"(%[[X]], %[[I]])
// JVP: %[[GATHER_2:.*]] = "stablehlo.gather"(%[[DX]], %[[I]])
// JVP: return %[[GATHER]], %[[GATHER_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5x4xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[CT:.*]]: tensor<3x4xf64>)
// VJP: %[[GATHER:.*]] = "stablehlo.gather"(%[[X]], %[[I]])
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<4>
// VJP: %[[C_3:.*]] = stablehlo.constant dense<0>
// VJP: %[[CLAMP:.*]] = stablehlo.clamp %[[C_3]], %[[I]], %[[C_2]]
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[C]], %[[CLAMP]], %[[CT]])
// VJP: return %[[GATHER]], %[[SCATTER]]
