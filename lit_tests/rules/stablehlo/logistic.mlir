// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.logistic %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[LOGISTIC:.*]] = stablehlo.logistic %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[LOGISTIC]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[LOGISTIC]], %[[SUBTRACT]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[MULTIPLY]]
// JVP: return %[[LOGISTIC]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[LOGISTIC:.*]] = stablehlo.logistic %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[C]], %[[LOGISTIC]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[LOGISTIC]], %[[SUBTRACT]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[MULTIPLY]]
// VJP: return %[[LOGISTIC]], %[[MULTIPLY1]]
