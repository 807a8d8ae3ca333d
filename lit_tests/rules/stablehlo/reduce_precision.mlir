// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.reduce_precision %x, format = e8m7 : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[REDUCE_PRECISION:.*]] = stablehlo.reduce_precision %[[X]], format = e8m7
// JVP: %[[REDUCE_PRECISION1:.*]] = stablehlo.reduce_precision %[[DX]], format = e8m7
// JVP: return %[[REDUCE_PRECISION]], %[[REDUCE_PRECISION1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[REDUCE_PRECISION:.*]] = stablehlo.reduce_precision %[[X]], format = e8m7
// VJP: %[[REDUCE_PRECISION1:.*]] = stablehlo.reduce_precision %[[CT]], format = e8m7
// VJP: return %[[REDUCE_PRECISION]], %[[REDUCE_PRECISION1]]
