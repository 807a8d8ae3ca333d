// The tangents of those that attain the maximum are averaged.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>, %i: tensor<3x1xi32>, %u: tensor<3xf64>) -> tensor<5xf64> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %m = stablehlo.maximum %a, %b : tensor<f64>
    stablehlo.return %m : tensor<f64>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<5xf64>, tensor<3x1xi32>, tensor<3xf64>) -> tensor<5xf64>
  return %0 : tensor<5xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[U:.*]]: tensor<3xf64>, %[[DX:.*]]: tensor<5xf64>, %[[DU:.*]]: tensor<3xf64>)
// JVP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[X]], %[[I]], %[[U]])
// JVP: %[[GATHER:.*]] = "stablehlo.gather"(%[[SCATTER]], %[[I]])
// JVP: %[[WINS:.*]] = stablehlo.compare EQ, %[[U]], %[[GATHER]]
// JVP: %[[WINNERS:.*]] = "stablehlo.scatter"(%{{.*}}, %[[I]], %{{.*}})
// JVP: %[[NONE:.*]] = stablehlo.compare EQ, %[[WINNERS]], %{{.*}}
// JVP: %[[SAME:.*]] = stablehlo.compare EQ, %[[X]], %[[SCATTER]]
// JVP: %[[KEEPS:.*]] = stablehlo.or %[[NONE]], %[[SAME]]
// JVP: %[[SHARE:.*]] = stablehlo.divide
// JVP: %[[OLD:.*]] = stablehlo.select %[[KEEPS]]
// JVP: %[[GATHER_2:.*]] = "stablehlo.gather"(%[[SHARE]], %[[I]])
// JVP: %[[NEW:.*]] = stablehlo.select %[[WINS]]
// JVP: %[[TANGENT:.*]] = "stablehlo.scatter"(%[[OLD]], %[[I]], %[[NEW]])
// JVP: return %[[SCATTER]], %[[TANGENT]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[I:.*]]: tensor<3x1xi32>, %[[U:.*]]: tensor<3xf64>, %[[CT:.*]]: tensor<5xf64>)
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[X]], %[[I]], %[[U]])
// VJP: %[[GATHER:.*]] = "stablehlo.gather"(%[[SCATTER]], %[[I]])
// VJP: %[[WINNERS:.*]] = "stablehlo.scatter"(%{{.*}}, %[[I]], %{{.*}})
// VJP: %[[SHARE:.*]] = stablehlo.divide
// VJP: %[[GATHER_2:.*]] = "stablehlo.gather"(%[[SHARE]], %[[I]])
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.and across dimensions = [1]
// VJP: %[[GATHER_3:.*]] = "stablehlo.gather"(%[[CT]], %[[I]])
// VJP-NOT: "stablehlo.scatter"
// VJP: return %[[SCATTER]], %{{.*}}, %{{.*}}
