// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %n = stablehlo.constant dense<2.0> : tensor<4xf64>
  %0 = chlo.zeta %n, %x : tensor<4xf64>, tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<2.000000e+00>
// JVP: %[[ZETA:.*]] = chlo.zeta %[[C]], %[[X]]
// JVP: %[[C1:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[NEGATE:.*]] = stablehlo.negate %[[DX]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[C]], %[[C1]]
// JVP: %[[ZETA1:.*]] = chlo.zeta %[[ADD]], %[[X]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[C]], %[[ZETA1]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[NEGATE]], %[[MULTIPLY]]
// JVP: return %[[ZETA]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<2.000000e+00>
// VJP: %[[ZETA:.*]] = chlo.zeta %[[C]], %[[X]]
// VJP: %[[C1:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[CT]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[C]], %[[C1]]
// VJP: %[[ZETA1:.*]] = chlo.zeta %[[ADD]], %[[X]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[C]], %[[ZETA1]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[NEGATE]], %[[MULTIPLY]]
// VJP: return %[[ZETA]], %[[MULTIPLY1]]
