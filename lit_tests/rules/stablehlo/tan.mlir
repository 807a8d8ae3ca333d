// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.tan %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[TAN:.*]] = stablehlo.tan %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[TAN]], %[[TAN]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[C]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[ADD]]
// JVP: return %[[TAN]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[TAN:.*]] = stablehlo.tan %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[TAN]], %[[TAN]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[C]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[ADD]]
// VJP: return %[[TAN]], %[[MULTIPLY1]]
