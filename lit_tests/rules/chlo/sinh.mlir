// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.sinh %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[SINH:.*]] = chlo.sinh %[[X]]
// JVP: %[[COSH:.*]] = chlo.cosh %[[X]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[COSH]]
// JVP: return %[[SINH]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[SINH:.*]] = chlo.sinh %[[X]]
// VJP: %[[COSH:.*]] = chlo.cosh %[[X]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[COSH]]
// VJP: return %[[SINH]], %[[MULTIPLY]]
