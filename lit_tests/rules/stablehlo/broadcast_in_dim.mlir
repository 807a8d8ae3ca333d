// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3x1xf64>) -> tensor<2x5x3xf64> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [2, 1] : (tensor<3x1xf64>) -> tensor<2x5x3xf64>
  return %0 : tensor<2x5x3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<3x1xf64>, %[[DX:.*]]: tensor<3x1xf64>)
// JVP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[X]], dims = [2, 1]
// JVP: %[[BROADCAST_IN_DIM1:.*]] = stablehlo.broadcast_in_dim %[[DX]], dims = [2, 1]
// JVP: return %[[BROADCAST_IN_DIM]], %[[BROADCAST_IN_DIM1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<3x1xf64>, %[[CT:.*]]: tensor<2x5x3xf64>)
// VJP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[X]], dims = [2, 1]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[CT]] init: %[[C]]) applies stablehlo.add across dimensions = [0, 1]
// VJP: %[[RESHAPE:.*]] = stablehlo.reshape %[[REDUCE]]
// VJP: return %[[BROADCAST_IN_DIM]], %[[RESHAPE]]

// What is added with size 1 is dropped again, by a reshape.
func.func @row(%x: tensor<3xf64>) -> tensor<1x3xf64> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<3xf64>) -> tensor<1x3xf64>
  return %0 : tensor<1x3xf64>
}
// RUN: pullback-opt %s -p "vjp{entry=row}" | filecheck %s --check-prefix=ROW
// ROW-LABEL: func.func @row
// ROW-SAME: (%[[X:.*]]: tensor<3xf64>, %[[CT:.*]]: tensor<1x3xf64>)
// ROW-NOT: stablehlo.reduce
// ROW: %[[RESHAPE:.*]] = stablehlo.reshape %[[CT]] : (tensor<1x3xf64>) -> tensor<3xf64>
// ROW: return %{{.*}}, %[[RESHAPE]]
