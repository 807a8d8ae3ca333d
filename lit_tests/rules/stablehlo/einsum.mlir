// A sum over what the result lacks, and one product.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3x5xf64>, %y: tensor<3x4xf64>) -> tensor<4x2xf64> {
  %0 = stablehlo.einsum %x, %y, config = "abz,bc->ca" : (tensor<2x3x5xf64>, tensor<3x4xf64>) -> tensor<4x2xf64>
  return %0 : tensor<4x2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<2x3x5xf64>, %[[Y:.*]]: tensor<3x4xf64>, %[[DX:.*]]: tensor<2x3x5xf64>, %[[DY:.*]]: tensor<3x4xf64>)
// JVP: %[[EINSUM:.*]] = stablehlo.einsum %[[X]], %[[Y]]
// JVP: %[[SUM:.*]] = stablehlo.reduce(%[[X]] init: %{{.*}}) applies stablehlo.add across dimensions = [2]
// JVP: %[[DSUM:.*]] = stablehlo.reduce(%[[DX]] init: %{{.*}}) applies stablehlo.add across dimensions = [2]
// JVP: %[[LEFT:.*]] = stablehlo.dot_general %[[DSUM]], %[[Y]], contracting_dims = [1] x [0]
// JVP: %[[RIGHT:.*]] = stablehlo.dot_general %[[SUM]], %[[DY]], contracting_dims = [1] x [0]
// JVP: %[[ADD:.*]] = stablehlo.add %[[LEFT]], %[[RIGHT]]
// JVP: %[[TRANSPOSE:.*]] = stablehlo.transpose %[[ADD]], dims = [1, 0]
// JVP: return %[[EINSUM]], %[[TRANSPOSE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<2x3x5xf64>, %[[Y:.*]]: tensor<3x4xf64>, %[[CT:.*]]: tensor<4x2xf64>)
// VJP: %[[EINSUM:.*]] = stablehlo.einsum %[[X]], %[[Y]]
// VJP: %[[SUM:.*]] = stablehlo.reduce(%[[X]] init: %{{.*}}) applies stablehlo.add across dimensions = [2]
// VJP: %[[TRANSPOSE:.*]] = stablehlo.transpose %[[CT]], dims = [1, 0]
// VJP: %[[LEFT:.*]] = stablehlo.dot_general %[[TRANSPOSE]], %[[Y]], contracting_dims = [1] x [1]
// VJP: %[[RIGHT:.*]] = stablehlo.dot_general %[[SUM]], %[[TRANSPOSE]], contracting_dims = [0] x [0]
// VJP: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[LEFT]], dims = [0, 1]
// VJP: return %[[EINSUM]], %[[SPREAD]], %[[RIGHT]]
