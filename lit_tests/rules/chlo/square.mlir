// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.square %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[SQUARE:.*]] = chlo.square %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<2.000000e+00>
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[C]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[MULTIPLY]]
// JVP: return %[[SQUARE]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[SQUARE:.*]] = chlo.square %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<2.000000e+00>
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[C]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[MULTIPLY]]
// VJP: return %[[SQUARE]], %[[MULTIPLY1]]
