// Transposes to the opposite exchange.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4x3xf64>) -> tensor<2x6xf64> {
  %0 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 1 : i64,
    split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<4x3xf64>) -> tensor<2x6xf64>
  return %0 : tensor<2x6xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[DX:.*]]: tensor<4x3xf64>)
// JVP: %[[ALL_TO_ALL:.*]] = "stablehlo.all_to_all"(%[[X]])
// JVP: %[[ALL_TO_ALL_2:.*]] = "stablehlo.all_to_all"(%[[DX]])
// JVP: return %[[ALL_TO_ALL]], %[[ALL_TO_ALL_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[CT:.*]]: tensor<2x6xf64>)
// VJP: %[[ALL_TO_ALL:.*]] = "stablehlo.all_to_all"(%[[X]])
// VJP: %[[ALL_TO_ALL_2:.*]] = "stablehlo.all_to_all"(%[[CT]])
// VJP-SAME: concat_dimension = 0 : i64
// VJP: return %[[ALL_TO_ALL]], %[[ALL_TO_ALL_2]]
