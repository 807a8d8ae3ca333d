// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3xf64>) -> tensor<2x3xf64> {
  %0 = stablehlo.broadcast %x, sizes = [2] : (tensor<3xf64>) -> tensor<2x3xf64>
  return %0 : tensor<2x3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[DX:.*]]: tensor<3xf64>)
// JVP: %[[BROADCAST:.*]] = stablehlo.broadcast %[[X]], sizes = [2]
// JVP: %[[BROADCAST1:.*]] = stablehlo.broadcast %[[DX]], sizes = [2]
// JVP: return %[[BROADCAST]], %[[BROADCAST1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[CT:.*]]: tensor<2x3xf64>)
// VJP: %[[BROADCAST:.*]] = stablehlo.broadcast %[[X]], sizes = [2]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[CT]] init: %[[C]]) applies stablehlo.add across dimensions = [0]
// VJP: return %[[BROADCAST]], %[[REDUCE]]
