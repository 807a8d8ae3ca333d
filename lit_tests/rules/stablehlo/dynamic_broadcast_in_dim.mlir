// With a static result type: a broadcast_in_dim.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3xf64>, %shape: tensor<2xi32>) -> tensor<3x2xf64> {
  %0 = stablehlo.dynamic_broadcast_in_dim %x, %shape, dims = [0]
    : (tensor<3xf64>, tensor<2xi32>) -> tensor<3x2xf64>
  return %0 : tensor<3x2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[SHAPE:.*]]: tensor<2xi32>, %[[DX:.*]]: tensor<3xf64>)
// JVP: %[[DYNAMIC_BROADCAST_IN_DIM:.*]] = stablehlo.dynamic_broadcast_in_dim %[[X]], %[[SHAPE]], dims = [0]
// JVP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[X]], dims = [0]
// JVP: %[[BROADCAST_IN_DIM_2:.*]] = stablehlo.broadcast_in_dim %[[DX]], dims = [0]
// JVP: return %[[DYNAMIC_BROADCAST_IN_DIM]], %[[BROADCAST_IN_DIM_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[SHAPE:.*]]: tensor<2xi32>, %[[CT:.*]]: tensor<3x2xf64>)
// VJP: %[[DYNAMIC_BROADCAST_IN_DIM:.*]] = stablehlo.dynamic_broadcast_in_dim %[[X]], %[[SHAPE]], dims = [0]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[CT]] init: %[[C]]) applies stablehlo.add across dimensions = [1]
// VJP: return %[[DYNAMIC_BROADCAST_IN_DIM]], %[[REDUCE]]
