// Transposes to all_gather.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<2xf64> {
  %0 = "stablehlo.reduce_scatter"(%x) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<4xf64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[REDUCE_SCATTER:.*]] = "stablehlo.reduce_scatter"(%[[X]])
// JVP: %[[REDUCE_SCATTER_2:.*]] = "stablehlo.reduce_scatter"(%[[DX]])
// JVP: return %[[REDUCE_SCATTER]], %[[REDUCE_SCATTER_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<2xf64>)
// VJP: %[[REDUCE_SCATTER:.*]] = "stablehlo.reduce_scatter"(%[[X]])
// VJP: %[[ALL_GATHER:.*]] = "stablehlo.all_gather"(%[[CT]])
// VJP: return %[[REDUCE_SCATTER]], %[[ALL_GATHER]]
