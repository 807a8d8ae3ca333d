// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.erf_inv %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ERF_INV:.*]] = chlo.erf_inv %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<0.88622692545275805>
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[ERF_INV]], %[[ERF_INV]]
// JVP: %[[EXPONENTIAL:.*]] = stablehlo.exponential %[[MULTIPLY]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[EXPONENTIAL]]
// JVP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[C]], %[[MULTIPLY1]]
// JVP: return %[[ERF_INV]], %[[MULTIPLY2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ERF_INV:.*]] = chlo.erf_inv %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.88622692545275805>
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[ERF_INV]], %[[ERF_INV]]
// VJP: %[[EXPONENTIAL:.*]] = stablehlo.exponential %[[MULTIPLY]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[EXPONENTIAL]]
// VJP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[C]], %[[MULTIPLY1]]
// VJP: return %[[ERF_INV]], %[[MULTIPLY2]]
