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
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[C]], %[[SQRT]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[DIVIDE]]
// JVP: return %[[SQRT]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[SQRT:.*]] = stablehlo.sqrt %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<5.000000e-01>
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[C]], %[[SQRT]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[DIVIDE]]
// VJP: return %[[SQRT]], %[[MULTIPLY]]
