// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3xf64>) -> tensor<2xf64> {
  %init = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
  %0 = stablehlo.reduce(%x init: %init) applies stablehlo.maximum across dimensions = [1] : (tensor<2x3xf64>, tensor<f64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<2x3xf64>, %[[DX:.*]]: tensor<2x3xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<0xFFF0000000000000>
// JVP: %[[REDUCE:.*]] = stablehlo.reduce(%[[X]] init: %[[C]]) applies stablehlo.maximum across dimensions = [1]
// JVP: %[[C1:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[REDUCE]], dims = [0]
// JVP: %[[COMPARE:.*]] = stablehlo.compare EQ, %[[X]], %[[BROADCAST_IN_DIM]], FLOAT
// JVP: %[[CONVERT:.*]] = stablehlo.convert %[[COMPARE]]
// JVP: %[[REDUCE1:.*]] = stablehlo.reduce(%[[CONVERT]] init: %[[C1]]) applies stablehlo.add across dimensions = [1]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[CONVERT]]
// JVP: %[[REDUCE2:.*]] = stablehlo.reduce(%[[MULTIPLY]] init: %[[C1]]) applies stablehlo.add across dimensions = [1]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[REDUCE2]], %[[REDUCE1]]
// JVP: return %[[REDUCE]], %[[DIVIDE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<2x3xf64>, %[[CT:.*]]: tensor<2xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<0xFFF0000000000000>
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[X]] init: %[[C]]) applies stablehlo.maximum across dimensions = [1]
// VJP: %[[C1:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[REDUCE]], dims = [0]
// VJP: %[[COMPARE:.*]] = stablehlo.compare EQ, %[[X]], %[[BROADCAST_IN_DIM]], FLOAT
// VJP: %[[CONVERT:.*]] = stablehlo.convert %[[COMPARE]]
// VJP: %[[REDUCE1:.*]] = stablehlo.reduce(%[[CONVERT]] init: %[[C1]]) applies stablehlo.add across dimensions = [1]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[CT]], %[[REDUCE1]]
// VJP: %[[BROADCAST_IN_DIM1:.*]] = stablehlo.broadcast_in_dim %[[DIVIDE]], dims = [0]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[BROADCAST_IN_DIM1]], %[[CONVERT]]
// VJP: return %[[REDUCE]], %[[MULTIPLY]]
