// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.exponential_minus_one %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[EXPONENTIAL_MINUS_ONE:.*]] = stablehlo.exponential_minus_one %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[ADD:.*]] = stablehlo.add %[[EXPONENTIAL_MINUS_ONE]], %[[C]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[ADD]]
// JVP: return %[[EXPONENTIAL_MINUS_ONE]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[EXPONENTIAL_MINUS_ONE:.*]] = stablehlo.exponential_minus_one %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[ADD:.*]] = stablehlo.add %[[EXPONENTIAL_MINUS_ONE]], %[[C]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[ADD]]
// VJP: return %[[EXPONENTIAL_MINUS_ONE]], %[[MULTIPLY]]
