// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.negate %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[NEGATE:.*]] = stablehlo.negate %[[X]]
// JVP: %[[NEGATE1:.*]] = stablehlo.negate %[[DX]]
// JVP: return %[[NEGATE]], %[[NEGATE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[X]]
// VJP: %[[NEGATE1:.*]] = stablehlo.negate %[[CT]]
// VJP: return %[[NEGATE]], %[[NEGATE1]]
