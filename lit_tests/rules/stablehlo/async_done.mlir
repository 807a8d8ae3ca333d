// The cotangents of two that wait for one future add up.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3xf64>) -> (tensor<6xf64>, tensor<6xf64>) {
  %0 = "stablehlo.async_start"(%x) ({
  ^bb0(%a: tensor<3xf64>):
    %1 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
      : (tensor<3xf64>) -> tensor<6xf64>
    stablehlo.return %1 : tensor<6xf64>
  }) : (tensor<3xf64>) -> !stablehlo.future<tensor<6xf64>>
  %2 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<6xf64>>) -> tensor<6xf64>
  %3 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<6xf64>>) -> tensor<6xf64>
  return %2, %3 : tensor<6xf64>, tensor<6xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[DX:.*]]: tensor<3xf64>)
// JVP: %[[FUTURE:.*]] = "stablehlo.async_start"(%[[X]])
// JVP: %[[DGATHER:.*]] = "stablehlo.all_gather"(%[[DX]])
// JVP: %[[ONE:.*]] = "stablehlo.async_done"(%[[FUTURE]])
// JVP: %[[OTHER:.*]] = "stablehlo.async_done"(%[[FUTURE]])
// JVP: return %[[ONE]], %[[OTHER]], %[[DGATHER]], %[[DGATHER]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[CT0:.*]]: tensor<6xf64>, %[[CT1:.*]]: tensor<6xf64>)
// VJP: %[[ADD:.*]] = stablehlo.add %[[CT1]], %[[CT0]]
// VJP: %[[SCATTER:.*]] = "stablehlo.reduce_scatter"(%[[ADD]])
// VJP: return %{{.*}}, %{{.*}}, %[[SCATTER]]
