// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3x4xf64>) -> tensor<4x2x3xf64> {
  %0 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<2x3x4xf64>) -> tensor<4x2x3xf64>
  return %0 : tensor<4x2x3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<2x3x4xf64>, %[[DX:.*]]: tensor<2x3x4xf64>)
// JVP: %[[TRANSPOSE:.*]] = stablehlo.transpose %[[X]], dims = [2, 0, 1]
// JVP: %[[TRANSPOSE1:.*]] = stablehlo.transpose %[[DX]], dims = [2, 0, 1]
// JVP: return %[[TRANSPOSE]], %[[TRANSPOSE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<2x3x4xf64>, %[[CT:.*]]: tensor<4x2x3xf64>)
// VJP: %[[TRANSPOSE:.*]] = stablehlo.transpose %[[X]], dims = [2, 0, 1]
// VJP: %[[TRANSPOSE1:.*]] = stablehlo.transpose %[[CT]], dims = [1, 2, 0]
// VJP: return %[[TRANSPOSE]], %[[TRANSPOSE1]]
