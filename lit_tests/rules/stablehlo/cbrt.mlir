// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.cbrt %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[CBRT:.*]] = stablehlo.cbrt %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<0.33333333333333331>
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[C]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[MULTIPLY]], %[[CBRT]]
// JVP: %[[DIVIDE1:.*]] = stablehlo.divide %[[DIVIDE]], %[[CBRT]]
// JVP: return %[[CBRT]], %[[DIVIDE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[CBRT:.*]] = stablehlo.cbrt %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.33333333333333331>
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[C]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[MULTIPLY]], %[[CBRT]]
// VJP: %[[DIVIDE1:.*]] = stablehlo.divide %[[DIVIDE]], %[[CBRT]]
// VJP: return %[[CBRT]], %[[DIVIDE1]]
