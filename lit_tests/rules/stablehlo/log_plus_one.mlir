// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.log_plus_one %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[LOG_PLUS_ONE:.*]] = stablehlo.log_plus_one %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[DX]], %[[ADD]]
// JVP: return %[[LOG_PLUS_ONE]], %[[DIVIDE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[LOG_PLUS_ONE:.*]] = stablehlo.log_plus_one %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[CT]], %[[ADD]]
// VJP: return %[[LOG_PLUS_ONE]], %[[DIVIDE]]
