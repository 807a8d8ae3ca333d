// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %n = stablehlo.constant dense<2.0> : tensor<4xf64>
  %0 = chlo.next_after %x, %n : tensor<4xf64>, tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<2.000000e+00>
// JVP: %[[NEXT_AFTER:.*]] = chlo.next_after %[[X]], %[[C]]
// JVP: return %[[NEXT_AFTER]], %[[DX]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<2.000000e+00>
// VJP: %[[NEXT_AFTER:.*]] = chlo.next_after %[[X]], %[[C]]
// VJP: return %[[NEXT_AFTER]], %[[CT]]
