// Cotangents are added up at the sender.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}
    : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[COLLECTIVE_BROADCAST:.*]] = "stablehlo.collective_broadcast"(%[[X]])
// JVP: %[[COLLECTIVE_BROADCAST_2:.*]] = "stablehlo.collective_broadcast"(%[[DX]])
// JVP: return %[[COLLECTIVE_BROADCAST]], %[[COLLECTIVE_BROADCAST_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[COLLECTIVE_BROADCAST:.*]] = "stablehlo.collective_broadcast"(%[[X]])
// VJP: %[[COLLECTIVE_PERMUTE:.*]] = "stablehlo.collective_permute"(%[[CT]])
// VJP: %[[ADD:.*]] = stablehlo.add %[[CT]], %[[COLLECTIVE_PERMUTE]]
// VJP: %[[COLLECTIVE_PERMUTE_2:.*]] = "stablehlo.collective_permute"(%[[ADD]])
// VJP: %[[ADD_2:.*]] = stablehlo.add %[[ADD]], %[[COLLECTIVE_PERMUTE_2]]
// VJP: %[[COLLECTIVE_PERMUTE_3:.*]] = "stablehlo.collective_permute"(%[[ADD_2]])
// VJP: return %[[COLLECTIVE_BROADCAST]], %[[COLLECTIVE_PERMUTE_3]]
