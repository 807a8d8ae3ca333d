// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.abs %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[ABS:.*]] = stablehlo.abs %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[COMPARE:.*]] = stablehlo.compare GE, %[[X]], %[[C]], FLOAT
// JVP: %[[NEGATE:.*]] = stablehlo.negate %[[DX]]
// JVP: %[[SELECT:.*]] = stablehlo.select %[[COMPARE]], %[[DX]], %[[NEGATE]]
// JVP: return %[[ABS]], %[[SELECT]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[ABS:.*]] = stablehlo.abs %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[COMPARE:.*]] = stablehlo.compare GE, %[[X]], %[[C]], FLOAT
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[CT]]
// VJP: %[[SELECT:.*]] = stablehlo.select %[[COMPARE]], %[[CT]], %[[NEGATE]]
// VJP: return %[[ABS]], %[[SELECT]]
