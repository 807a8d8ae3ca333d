// Transposes to reduce_scatter.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<8xf64> {
  %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<4xf64>) -> tensor<8xf64>
  return %0 : tensor<8xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ALL_GATHER:.*]] = "stablehlo.all_gather"(%[[X]])
// JVP: %[[ALL_GATHER_2:.*]] = "stablehlo.all_gather"(%[[DX]])
// JVP: return %[[ALL_GATHER]], %[[ALL_GATHER_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<8xf64>)
// VJP: %[[ALL_GATHER:.*]] = "stablehlo.all_gather"(%[[X]])
// VJP: %[[REDUCE_SCATTER:.*]] = "stablehlo.reduce_scatter"(%[[CT]])
// VJP: return %[[ALL_GATHER]], %[[REDUCE_SCATTER]]
