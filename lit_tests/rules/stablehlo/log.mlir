// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.log %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[LOG:.*]] = stablehlo.log %[[X]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[DX]], %[[X]]
// JVP: return %[[LOG]], %[[DIVIDE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[LOG:.*]] = stablehlo.log %[[X]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[CT]], %[[X]]
// VJP: return %[[LOG]], %[[DIVIDE]]
