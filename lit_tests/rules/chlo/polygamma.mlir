// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %n = stablehlo.constant dense<2.0> : tensor<4xf64>
  %0 = chlo.polygamma %n, %x : tensor<4xf64>, tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<2.000000e+00>
// JVP: %[[POLYGAMMA:.*]] = chlo.polygamma %[[C]], %[[X]]
// JVP: %[[C1:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[ADD:.*]] = stablehlo.add %[[C]], %[[C1]]
// JVP: %[[POLYGAMMA1:.*]] = chlo.polygamma %[[ADD]], %[[X]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[POLYGAMMA1]]
// JVP: return %[[POLYGAMMA]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<2.000000e+00>
// VJP: %[[POLYGAMMA:.*]] = chlo.polygamma %[[C]], %[[X]]
// VJP: %[[C1:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[ADD:.*]] = stablehlo.add %[[C]], %[[C1]]
// VJP: %[[POLYGAMMA1:.*]] = chlo.polygamma %[[ADD]], %[[X]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[POLYGAMMA1]]
// VJP: return %[[POLYGAMMA]], %[[MULTIPLY]]
