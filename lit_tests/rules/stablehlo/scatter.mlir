// A scatter drops what is outside; the gather that transposes it is masked.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5x4xf64>, %i: tensor<3x1xi32>, %u: tensor<3x4xf64>) -> tensor<5x4xf64> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  }) {
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<5x4xf64>, tensor<3x1xi32>, tensor<3x4xf64>) -> tensor<5x4xf64>
  return %0 : tensor<5x4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5x4xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[U:.*]]: tensor<3x4xf64>, %[[DX:.*]]: tensor<5x4xf64>, %[[DU:.*]]: tensor<3x4xf64>)
// JVP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[X]], %[[I]], %[[U]])
// JVP: %[[SCATTER_2:.*]] = "stablehlo.scatter"(%[[DX]], %[[I]], %[[DU]])
// JVP: return %[[SCATTER]], %[[SCATTER_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5x4xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[U:.*]]: tensor<3x4xf64>, %[[CT:.*]]: tensor<5x4xf64>)
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[X]], %[[I]], %[[U]])
// VJP: %[[C:.*]] = stablehlo.constant dense<4>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<0>
// VJP: %[[IS:.*]] = stablehlo.compare GE, %[[I]], %[[C_2]], SIGNED
// VJP: %[[IS_2:.*]] = stablehlo.compare LE, %[[I]], %[[C]], SIGNED
// VJP: %[[AND:.*]] = stablehlo.and %[[IS]], %[[IS_2]]
// VJP: %[[C_3:.*]] = stablehlo.constant dense<true>
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[AND]] init: %[[C_3]]) applies stablehlo.and across dimensions = [1]
// VJP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[REDUCE]], dims = [0]
// VJP: %[[GATHER:.*]] = "stablehlo.gather"(%[[CT]], %[[I]])
// VJP: %[[C_4:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT:.*]] = stablehlo.select %[[BROADCAST_IN_DIM]], %[[GATHER]], %[[C_4]]
// VJP: return %[[SCATTER]], %[[CT]], %[[SELECT]]
