// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.round_nearest_afz %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ROUND_NEAREST_AFZ:.*]] = stablehlo.round_nearest_afz %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: return %[[ROUND_NEAREST_AFZ]], %[[C]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ROUND_NEAREST_AFZ:.*]] = stablehlo.round_nearest_afz %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: return %[[ROUND_NEAREST_AFZ]], %[[C]]
