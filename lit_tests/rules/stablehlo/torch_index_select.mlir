// A gather for each batch; indices of 64 bits are unsigned ones of 32 to XLA.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x5x4xf64>, %i: tensor<2x3xi64>) -> tensor<2x3x4xf64> {
  %0 = "stablehlo.torch_index_select"(%x, %i) <{dim = 1 : i64, batch_dims = 1 : i64}>
    : (tensor<2x5x4xf64>, tensor<2x3xi64>) -> tensor<2x3x4xf64>
  return %0 : tensor<2x3x4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<2x5x4xf64>, %[[I:.*]]: tensor<2x3xi64>, %[[DX:.*]]: tensor<2x5x4xf64>)
// JVP: %[[SELECT:.*]] = "stablehlo.torch_index_select"(%[[X]], %[[I]])
// JVP: %[[INDICES:.*]] = stablehlo.convert %[[I]] : (tensor<2x3xi64>) -> tensor<2x3xui32>
// JVP: %[[GATHER:.*]] = "stablehlo.gather"(%[[DX]], %[[INDICES]])
// JVP-SAME: operand_batching_dims = [0], start_indices_batching_dims = [0]
// JVP: return %[[SELECT]], %[[GATHER]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<2x5x4xf64>, %[[I:.*]]: tensor<2x3xi64>, %[[CT:.*]]: tensor<2x3x4xf64>)
// VJP: %[[SELECT:.*]] = "stablehlo.torch_index_select"(%[[X]], %[[I]])
// VJP: %[[INDICES:.*]] = stablehlo.convert %[[I]] : (tensor<2x3xi64>) -> tensor<2x3xui32>
// VJP: %[[CLAMP:.*]] = stablehlo.clamp %{{.*}}, %[[INDICES]], %{{.*}}
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%{{.*}}, %[[CLAMP]], %[[CT]])
// VJP-SAME: input_batching_dims = [0], scatter_indices_batching_dims = [0]
// VJP: return %[[SELECT]], %[[SCATTER]]
