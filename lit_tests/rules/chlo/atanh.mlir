// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.atanh %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ATANH:.*]] = chlo.atanh %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[C]], %[[ADD]]
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[X]]
// JVP: %[[DIVIDE1:.*]] = stablehlo.divide %[[DX]], %[[SUBTRACT]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DIVIDE]], %[[DIVIDE1]]
// JVP: return %[[ATANH]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ATANH:.*]] = chlo.atanh %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[C]], %[[ADD]]
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[X]]
// VJP: %[[DIVIDE1:.*]] = stablehlo.divide %[[CT]], %[[SUBTRACT]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DIVIDE]], %[[DIVIDE1]]
// VJP: return %[[ATANH]], %[[MULTIPLY]]
