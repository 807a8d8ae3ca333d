// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.exponential_minus_one %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[EXPONENTIAL_MINUS_ONE:.*]] = stablehlo.exponential_minus_one %[[X]]
// JVP: %[[EXPONENTIAL:.*]] = stablehlo.exponential %[[X]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[EXPONENTIAL]]
// JVP: return %[[EXPONENTIAL_MINUS_ONE]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[EXPONENTIAL_MINUS_ONE:.*]] = stablehlo.exponential_minus_one %[[X]]
// VJP: %[[EXPONENTIAL:.*]] = stablehlo.exponential %[[X]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[EXPONENTIAL]]
// VJP: return %[[EXPONENTIAL_MINUS_ONE]], %[[MULTIPLY]]
