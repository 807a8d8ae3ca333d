// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP
// RUN: pullback-opt %s -p "vjp{entry=rows}" | filecheck %s --check-prefix=ROWS

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.divide %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// The broadcast of a divisor is repeated, so that XLA can take the reciprocal of what is small; the
// terms of its cotangent are divided once more when they are summed.
func.func @rows(%x: tensor<2x4xf64>, %y: tensor<2xf64>) -> tensor<2x4xf64> {
  %0 = stablehlo.broadcast_in_dim %y, dims = [0] : (tensor<2xf64>) -> tensor<2x4xf64>
  %1 = stablehlo.divide %x, %0 : tensor<2x4xf64>
  return %1 : tensor<2x4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[Y]]
// JVP: %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP-NEXT: %[[OF_DX:.*]] = stablehlo.divide %[[DX]], %[[Y]]
// JVP-NEXT: %[[RECIPROCAL:.*]] = stablehlo.divide %[[ONE]], %[[Y]]
// JVP-NEXT: %[[CHANGE:.*]] = stablehlo.multiply %[[DY]], %[[RECIPROCAL]]
// JVP-NEXT: %[[QUOTIENT:.*]] = stablehlo.multiply %[[X]], %[[RECIPROCAL]]
// JVP-NEXT: %[[OF_DY:.*]] = stablehlo.multiply %[[CHANGE]], %[[QUOTIENT]]
// JVP-NEXT: %[[SUBTRACT:.*]] = stablehlo.subtract %[[OF_DX]], %[[OF_DY]]
// JVP-NEXT: return %[[DIVIDE]], %[[SUBTRACT]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[Y]]
// VJP: %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP-NEXT: %[[DX:.*]] = stablehlo.divide %[[CT]], %[[Y]]
// VJP-NEXT: %[[RECIPROCAL:.*]] = stablehlo.divide %[[ONE]], %[[Y]]
// VJP-NEXT: %[[CHANGE:.*]] = stablehlo.multiply %[[CT]], %[[RECIPROCAL]]
// VJP-NEXT: %[[QUOTIENT:.*]] = stablehlo.multiply %[[X]], %[[RECIPROCAL]]
// VJP-NEXT: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CHANGE]], %[[QUOTIENT]]
// VJP-NEXT: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY]]
// VJP-NEXT: return %[[DIVIDE]], %[[DX]], %[[NEGATE]]

// ROWS-LABEL: func.func @rows
// ROWS-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// ROWS: %[[BROADCAST:.*]] = stablehlo.broadcast_in_dim %[[Y]], dims = [0]
// ROWS-NEXT: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[BROADCAST]]
// ROWS-NEXT: %[[AGAIN:.*]] = stablehlo.broadcast_in_dim %[[Y]], dims = [0]
// ROWS-NEXT: %[[DX:.*]] = stablehlo.divide %[[CT]], %[[AGAIN]]
// ROWS-NEXT: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[X]]
// ROWS-NEXT: %[[CST:.*]] = stablehlo.constant
// ROWS-NEXT: %[[REDUCE:.*]] = stablehlo.reduce(%[[MULTIPLY]]
// ROWS: %[[DIVIDE1:.*]] = stablehlo.divide %[[REDUCE]], %[[Y]]
// ROWS-NEXT: %[[NEGATE:.*]] = stablehlo.negate %[[DIVIDE1]]
// ROWS: return %[[DIVIDE]], %[[DX]], %[[NEGATE]]
