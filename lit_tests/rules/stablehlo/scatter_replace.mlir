// Which update of an element wins is found by scattering their numbers.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>, %i: tensor<3x1xi32>, %u: tensor<3xf64>) -> tensor<5xf64> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    stablehlo.return %b : tensor<f64>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<5xf64>, tensor<3x1xi32>, tensor<3xf64>) -> tensor<5xf64>
  return %0 : tensor<5xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[U:.*]]: tensor<3xf64>, %[[DX:.*]]: tensor<5xf64>, %[[DU:.*]]: tensor<3xf64>)
// JVP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[X]], %[[I]], %[[U]])
// JVP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// JVP: %[[C:.*]] = stablehlo.constant dense<1>
// JVP: %[[ADD:.*]] = stablehlo.add %[[IOTA]], %[[C]]
// JVP: %[[C_2:.*]] = stablehlo.constant dense<0>
// JVP: %[[SCATTER_2:.*]] = "stablehlo.scatter"(%[[C_2]], %[[I]], %[[ADD]])
// JVP: %[[IS:.*]] = stablehlo.compare EQ, %[[SCATTER_2]], %[[C_2]], UNSIGNED
// JVP: %[[GATHER:.*]] = "stablehlo.gather"(%[[SCATTER_2]], %[[I]])
// JVP: %[[IS_2:.*]] = stablehlo.compare EQ, %[[ADD]], %[[GATHER]], UNSIGNED
// JVP: %[[C_3:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[SELECT:.*]] = stablehlo.select %[[IS]], %[[DX]], %[[C_3]]
// JVP: %[[C_4:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[SELECT_2:.*]] = stablehlo.select %[[IS_2]], %[[DU]], %[[C_4]]
// JVP: %[[SCATTER_3:.*]] = "stablehlo.scatter"(%[[SELECT]], %[[I]], %[[SELECT_2]])
// JVP: return %[[SCATTER]], %[[SCATTER_3]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[U:.*]]: tensor<3xf64>, %[[CT:.*]]: tensor<5xf64>)
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[X]], %[[I]], %[[U]])
// VJP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// VJP: %[[C:.*]] = stablehlo.constant dense<1>
// VJP: %[[ADD:.*]] = stablehlo.add %[[IOTA]], %[[C]]
// VJP: %[[C_2:.*]] = stablehlo.constant dense<0>
// VJP: %[[SCATTER_2:.*]] = "stablehlo.scatter"(%[[C_2]], %[[I]], %[[ADD]])
// VJP: %[[IS:.*]] = stablehlo.compare EQ, %[[SCATTER_2]], %[[C_2]], UNSIGNED
// VJP: %[[GATHER:.*]] = "stablehlo.gather"(%[[SCATTER_2]], %[[I]])
// VJP: %[[IS_2:.*]] = stablehlo.compare EQ, %[[ADD]], %[[GATHER]], UNSIGNED
// VJP: %[[C_3:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT:.*]] = stablehlo.select %[[IS]], %[[CT]], %[[C_3]]
// VJP: %[[GATHER_2:.*]] = "stablehlo.gather"(%[[CT]], %[[I]])
// VJP: %[[C_4:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT_2:.*]] = stablehlo.select %[[IS_2]], %[[GATHER_2]], %[[C_4]]
// VJP: return %[[SCATTER]], %[[SELECT]], %[[SELECT_2]]
