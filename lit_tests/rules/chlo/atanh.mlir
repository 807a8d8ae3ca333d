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
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[X]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[SUBTRACT]], %[[ADD]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[DX]], %[[MULTIPLY]]
// JVP: return %[[ATANH]], %[[DIVIDE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ATANH:.*]] = chlo.atanh %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[X]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[SUBTRACT]], %[[ADD]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[CT]], %[[MULTIPLY]]
// VJP: return %[[ATANH]], %[[DIVIDE]]
