// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.tanh %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[TANH:.*]] = stablehlo.tanh %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[ADD:.*]] = stablehlo.add %[[TANH]], %[[C]]
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[TANH]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[ADD]], %[[SUBTRACT]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[MULTIPLY]]
// JVP: return %[[TANH]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[TANH:.*]] = stablehlo.tanh %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[ADD:.*]] = stablehlo.add %[[TANH]], %[[C]]
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[TANH]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[ADD]], %[[SUBTRACT]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[MULTIPLY]]
// VJP: return %[[TANH]], %[[MULTIPLY1]]
