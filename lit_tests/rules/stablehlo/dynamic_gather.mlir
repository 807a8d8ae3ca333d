// The sizes of a dynamic gather are known from its result type.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5x4xf64>, %i: tensor<3x1xi32>, %sizes: tensor<2xi32>) -> tensor<3x4xf64> {
  %0 = "stablehlo.dynamic_gather"(%x, %i, %sizes) {
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>}
    : (tensor<5x4xf64>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<3x4xf64>
  return %0 : tensor<3x4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5x4xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[SIZES:.*]]: tensor<2xi32>, %[[DX:.*]]: tensor<5x4xf64>)
// JVP: %[[DYNAMIC_GATHER:.*]] = "stablehlo.dynamic_gather"(%[[X]], %[[I]], %[[SIZES]])
// JVP: %[[DYNAMIC_GATHER_2:.*]] = "stablehlo.dynamic_gather"(%[[DX]], %[[I]], %[[SIZES]])
// JVP: return %[[DYNAMIC_GATHER]], %[[DYNAMIC_GATHER_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5x4xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[SIZES:.*]]: tensor<2xi32>, %[[CT:.*]]: tensor<3x4xf64>)
// VJP: %[[DYNAMIC_GATHER:.*]] = "stablehlo.dynamic_gather"(%[[X]], %[[I]], %[[SIZES]])
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<4>
// VJP: %[[C_3:.*]] = stablehlo.constant dense<0>
// VJP: %[[CLAMP:.*]] = stablehlo.clamp %[[C_3]], %[[I]], %[[C_2]]
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[C]], %[[CLAMP]], %[[CT]])
// VJP: return %[[DYNAMIC_GATHER]], %[[SCATTER]]
