// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.asinh %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ASINH:.*]] = chlo.asinh %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[C]]
// JVP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[ADD]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[RSQRT]]
// JVP: return %[[ASINH]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ASINH:.*]] = chlo.asinh %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[C]]
// VJP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[ADD]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[RSQRT]]
// VJP: return %[[ASINH]], %[[MULTIPLY1]]
