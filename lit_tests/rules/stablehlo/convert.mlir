// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xbf16> {
  %0 = stablehlo.convert %x : (tensor<4xf64>) -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[CONVERT:.*]] = stablehlo.convert %[[X]]
// JVP: %[[CONVERT1:.*]] = stablehlo.convert %[[DX]]
// JVP: return %[[CONVERT]], %[[CONVERT1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xbf16>)
// VJP: %[[CONVERT:.*]] = stablehlo.convert %[[X]]
// VJP: %[[CONVERT1:.*]] = stablehlo.convert %[[CT]]
// VJP: return %[[CONVERT]], %[[CONVERT1]]
