// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.atan %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ATAN:.*]] = chlo.atan %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[C]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[DX]], %[[ADD]]
// JVP: return %[[ATAN]], %[[DIVIDE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ATAN:.*]] = chlo.atan %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[C]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[CT]], %[[ADD]]
// VJP: return %[[ATAN]], %[[DIVIDE]]
