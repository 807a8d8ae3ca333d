// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %p = stablehlo.is_finite %x : (tensor<4xf64>) -> tensor<4xi1>
  %0 = stablehlo.select %p, %x, %x : tensor<4xi1>, tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[IS_FINITE:.*]] = stablehlo.is_finite %[[X]]
// JVP: %[[SELECT:.*]] = stablehlo.select %[[IS_FINITE]], %[[X]], %[[X]]
// JVP-NEXT: %[[SELECT1:.*]] = stablehlo.select %[[IS_FINITE]], %[[DX]], %[[DX]]
// JVP-NEXT: return %[[SELECT]], %[[SELECT1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[IS_FINITE:.*]] = stablehlo.is_finite %[[X]]
// VJP: %[[SELECT:.*]] = stablehlo.select %[[IS_FINITE]], %[[X]], %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT1:.*]] = stablehlo.select %[[IS_FINITE]], %[[CT]], %[[C]]
// VJP: %[[SELECT2:.*]] = stablehlo.select %[[IS_FINITE]], %[[C]], %[[CT]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[SELECT1]], %[[SELECT2]]
// VJP: return %[[SELECT]], %[[ADD]]
