// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.sqrt %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[SQRT:.*]] = stablehlo.sqrt %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<5.000000e-01>
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[C]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[MULTIPLY]], %[[SQRT]]
// JVP: return %[[SQRT]], %[[DIVIDE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[SQRT:.*]] = stablehlo.sqrt %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<5.000000e-01>
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[C]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[MULTIPLY]], %[[SQRT]]
// VJP: return %[[SQRT]], %[[DIVIDE]]
