// A sum over devices is its own transpose.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[CROSS_REPLICA_SUM:.*]] = "stablehlo.cross-replica-sum"(%[[X]])
// JVP: %[[CROSS_REPLICA_SUM_2:.*]] = "stablehlo.cross-replica-sum"(%[[DX]])
// JVP: return %[[CROSS_REPLICA_SUM]], %[[CROSS_REPLICA_SUM_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[CROSS_REPLICA_SUM:.*]] = "stablehlo.cross-replica-sum"(%[[X]])
// VJP: %[[CROSS_REPLICA_SUM_2:.*]] = "stablehlo.cross-replica-sum"(%[[CT]])
// VJP: return %[[CROSS_REPLICA_SUM]], %[[CROSS_REPLICA_SUM_2]]
