// A trace: what is off the diagonal counts for nothing.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3x3xf64>) -> tensor<f64> {
  %0 = stablehlo.unary_einsum %x, config = "aa->" : (tensor<3x3xf64>) -> tensor<f64>
  return %0 : tensor<f64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<3x3xf64>, %[[DX:.*]]: tensor<3x3xf64>)
// JVP: %[[TRACE:.*]] = stablehlo.unary_einsum %[[X]], config = "aa->"
// JVP: %[[EQUAL:.*]] = stablehlo.compare EQ, %{{.*}}, %{{.*}}
// JVP: %[[DIAGONAL:.*]] = stablehlo.select %[[EQUAL]], %[[DX]], %{{.*}}
// JVP: %[[REDUCE:.*]] = stablehlo.reduce(%[[DIAGONAL]] init: %{{.*}}) applies stablehlo.add across dimensions = [1]
// JVP: %[[DTRACE:.*]] = stablehlo.reduce(%[[REDUCE]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: return %[[TRACE]], %[[DTRACE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<3x3xf64>, %[[CT:.*]]: tensor<f64>)
// VJP: %[[TRACE:.*]] = stablehlo.unary_einsum %[[X]], config = "aa->"
// VJP: %[[EQUAL:.*]] = stablehlo.compare EQ, %{{.*}}, %{{.*}}
// VJP: %[[VECTOR:.*]] = stablehlo.broadcast_in_dim %[[CT]], dims = []
// VJP: %[[MATRIX:.*]] = stablehlo.broadcast_in_dim %[[VECTOR]], dims = [0]
// VJP: %[[DIAGONAL:.*]] = stablehlo.select %[[EQUAL]], %[[MATRIX]], %{{.*}}
// VJP: return %[[TRACE]], %[[DIAGONAL]]
