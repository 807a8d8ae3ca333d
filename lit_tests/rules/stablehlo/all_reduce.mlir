// A sum over devices is its own transpose.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ALL_REDUCE:.*]] = "stablehlo.all_reduce"(%[[X]])
// JVP-SAME: replica_groups = dense<{{.*}}0, 1{{.*}}>
// JVP: %[[ALL_REDUCE_2:.*]] = "stablehlo.all_reduce"(%[[DX]])
// JVP-SAME: replica_groups = dense<{{.*}}0, 1{{.*}}>
// JVP: return %[[ALL_REDUCE]], %[[ALL_REDUCE_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ALL_REDUCE:.*]] = "stablehlo.all_reduce"(%[[X]])
// VJP-SAME: replica_groups = dense<{{.*}}0, 1{{.*}}>
// VJP: %[[ALL_REDUCE_2:.*]] = "stablehlo.all_reduce"(%[[CT]])
// VJP-SAME: replica_groups = dense<{{.*}}0, 1{{.*}}>
// VJP: return %[[ALL_REDUCE]], %[[ALL_REDUCE_2]]
