// Unique indices make a product linear in each update.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>, %i: tensor<3x1xi32>, %u: tensor<3xf64>) -> tensor<5xf64> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %m = stablehlo.multiply %a, %b : tensor<f64>
    stablehlo.return %m : tensor<f64>
  }) {unique_indices = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<5xf64>, tensor<3x1xi32>, tensor<3xf64>) -> tensor<5xf64>
  return %0 : tensor<5xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[U:.*]]: tensor<3xf64>, %[[DX:.*]]: tensor<5xf64>, %[[DU:.*]]: tensor<3xf64>)
// JVP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[X]], %[[I]], %[[U]])
// JVP: %[[SCATTER_2:.*]] = "stablehlo.scatter"(%[[DX]], %[[I]], %[[U]])
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[SCATTER_3:.*]] = "stablehlo.scatter"(%[[C]], %[[I]], %[[DU]])
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[SCATTER_3]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[SCATTER_2]], %[[MULTIPLY]]
// JVP: return %[[SCATTER]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[U:.*]]: tensor<3xf64>, %[[CT:.*]]: tensor<5xf64>)
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[X]], %[[I]], %[[U]])
// VJP: %[[SCATTER_2:.*]] = "stablehlo.scatter"(%[[CT]], %[[I]], %[[U]])
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<4>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<0>
// VJP: %[[IS:.*]] = stablehlo.compare GE, %[[I]], %[[C_2]], SIGNED
// VJP: %[[IS_2:.*]] = stablehlo.compare LE, %[[I]], %[[C]], SIGNED
// VJP: %[[AND:.*]] = stablehlo.and %[[IS]], %[[IS_2]]
// VJP: %[[C_3:.*]] = stablehlo.constant dense<true>
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[AND]] init: %[[C_3]]) applies stablehlo.and across dimensions = [1]
// VJP: %[[GATHER:.*]] = "stablehlo.gather"(%[[MULTIPLY]], %[[I]])
// VJP: %[[C_4:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT:.*]] = stablehlo.select %[[REDUCE]], %[[GATHER]], %[[C_4]]
// VJP: return %[[SCATTER]], %[[SCATTER_2]], %[[SELECT]]
