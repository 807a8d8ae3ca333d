// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.digamma %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[DIGAMMA:.*]] = chlo.digamma %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[POLYGAMMA:.*]] = chlo.polygamma %[[C]], %[[X]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[POLYGAMMA]]
// JVP: return %[[DIGAMMA]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[DIGAMMA:.*]] = chlo.digamma %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[POLYGAMMA:.*]] = chlo.polygamma %[[C]], %[[X]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[POLYGAMMA]]
// VJP: return %[[DIGAMMA]], %[[MULTIPLY]]
