// Transposes to the reversed arrows.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>}
    : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[COLLECTIVE_PERMUTE:.*]] = "stablehlo.collective_permute"(%[[X]])
// JVP: %[[COLLECTIVE_PERMUTE_2:.*]] = "stablehlo.collective_permute"(%[[DX]])
// JVP: return %[[COLLECTIVE_PERMUTE]], %[[COLLECTIVE_PERMUTE_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[COLLECTIVE_PERMUTE:.*]] = "stablehlo.collective_permute"(%[[X]])
// VJP: %[[COLLECTIVE_PERMUTE_2:.*]] = "stablehlo.collective_permute"(%[[CT]])
// VJP-SAME: 1, 0{{.*}}2, 1
// VJP: return %[[COLLECTIVE_PERMUTE]], %[[COLLECTIVE_PERMUTE_2]]
