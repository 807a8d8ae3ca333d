// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3xf64>) -> tensor<6xf64> {
  %0 = stablehlo.reshape %x : (tensor<2x3xf64>) -> tensor<6xf64>
  return %0 : tensor<6xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<2x3xf64>, %[[DX:.*]]: tensor<2x3xf64>)
// JVP: %[[RESHAPE:.*]] = stablehlo.reshape %[[X]]
// JVP: %[[RESHAPE1:.*]] = stablehlo.reshape %[[DX]]
// JVP: return %[[RESHAPE]], %[[RESHAPE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<2x3xf64>, %[[CT:.*]]: tensor<6xf64>)
// VJP: %[[RESHAPE:.*]] = stablehlo.reshape %[[X]]
// VJP: %[[RESHAPE1:.*]] = stablehlo.reshape %[[CT]]
// VJP: return %[[RESHAPE]], %[[RESHAPE1]]
