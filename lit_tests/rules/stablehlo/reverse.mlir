// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %0 = stablehlo.reverse %x, dims = [1] : tensor<2x3xf64>
  return %0 : tensor<2x3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<2x3xf64>, %[[DX:.*]]: tensor<2x3xf64>)
// JVP: %[[REVERSE:.*]] = stablehlo.reverse %[[X]], dims = [1]
// JVP: %[[REVERSE1:.*]] = stablehlo.reverse %[[DX]], dims = [1]
// JVP: return %[[REVERSE]], %[[REVERSE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<2x3xf64>, %[[CT:.*]]: tensor<2x3xf64>)
// VJP: %[[REVERSE:.*]] = stablehlo.reverse %[[X]], dims = [1]
// VJP: %[[REVERSE1:.*]] = stablehlo.reverse %[[CT]], dims = [1]
// VJP: return %[[REVERSE]], %[[REVERSE1]]
