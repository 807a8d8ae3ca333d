// With a static result type: a reshape.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3xf64>, %shape: tensor<2xi32>) -> tensor<3x2xf64> {
  %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<2x3xf64>, tensor<2xi32>) -> tensor<3x2xf64>
  return %0 : tensor<3x2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<2x3xf64>, %[[SHAPE:.*]]: tensor<2xi32>, %[[DX:.*]]: tensor<2x3xf64>)
// JVP: %[[DYNAMIC_RESHAPE:.*]] = stablehlo.dynamic_reshape %[[X]], %[[SHAPE]]
// JVP: %[[RESHAPE:.*]] = stablehlo.reshape %[[X]]
// JVP: %[[RESHAPE_2:.*]] = stablehlo.reshape %[[DX]]
// JVP: return %[[DYNAMIC_RESHAPE]], %[[RESHAPE_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<2x3xf64>, %[[SHAPE:.*]]: tensor<2xi32>, %[[CT:.*]]: tensor<3x2xf64>)
// VJP: %[[DYNAMIC_RESHAPE:.*]] = stablehlo.dynamic_reshape %[[X]], %[[SHAPE]]
// VJP: %[[RESHAPE_2:.*]] = stablehlo.reshape %[[CT]]
// VJP: return %[[DYNAMIC_RESHAPE]], %[[RESHAPE_2]]
