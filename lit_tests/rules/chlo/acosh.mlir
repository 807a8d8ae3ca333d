// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.acosh %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ACOSH:.*]] = chlo.acosh %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[X]], %[[C]]
// JVP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[SUBTRACT]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// JVP: %[[RSQRT1:.*]] = stablehlo.rsqrt %[[ADD]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[RSQRT]], %[[RSQRT1]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[MULTIPLY]]
// JVP: return %[[ACOSH]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ACOSH:.*]] = chlo.acosh %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[X]], %[[C]]
// VJP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[SUBTRACT]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// VJP: %[[RSQRT1:.*]] = stablehlo.rsqrt %[[ADD]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[RSQRT]], %[[RSQRT1]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[MULTIPLY]]
// VJP: return %[[ACOSH]], %[[MULTIPLY1]]
