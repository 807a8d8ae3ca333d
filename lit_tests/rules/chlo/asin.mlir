// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.asin %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ASIN:.*]] = chlo.asin %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[X]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[SUBTRACT]], %[[ADD]]
// JVP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[MULTIPLY]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[RSQRT]]
// JVP: return %[[ASIN]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ASIN:.*]] = chlo.asin %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[X]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[X]], %[[C]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[SUBTRACT]], %[[ADD]]
// VJP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[MULTIPLY]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[RSQRT]]
// VJP: return %[[ASIN]], %[[MULTIPLY1]]
