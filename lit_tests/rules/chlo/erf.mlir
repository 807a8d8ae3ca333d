// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.erf %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ERF:.*]] = chlo.erf %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.1283791670955126>
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// JVP: %[[LARGE:.*]] = stablehlo.compare GT, %[[MULTIPLY]]
// JVP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY]]
// JVP: %[[EXPONENTIAL:.*]] = stablehlo.exponential %[[NEGATE]]
// JVP: %[[SELECT:.*]] = stablehlo.select %[[LARGE]], %{{.*}}, %[[EXPONENTIAL]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[SELECT]]
// JVP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[C]], %[[MULTIPLY1]]
// JVP: return %[[ERF]], %[[MULTIPLY2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ERF:.*]] = chlo.erf %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.1283791670955126>
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// VJP: %[[LARGE:.*]] = stablehlo.compare GT, %[[MULTIPLY]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY]]
// VJP: %[[EXPONENTIAL:.*]] = stablehlo.exponential %[[NEGATE]]
// VJP: %[[SELECT:.*]] = stablehlo.select %[[LARGE]], %{{.*}}, %[[EXPONENTIAL]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[SELECT]]
// VJP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[C]], %[[MULTIPLY1]]
// VJP: return %[[ERF]], %[[MULTIPLY2]]
