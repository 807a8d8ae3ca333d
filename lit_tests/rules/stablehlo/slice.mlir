// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<7xf64>) -> tensor<3xf64> {
  %0 = stablehlo.slice %x [1:6:2] : (tensor<7xf64>) -> tensor<3xf64>
  return %0 : tensor<3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<7xf64>, %[[DX:.*]]: tensor<7xf64>)
// JVP: %[[SLICE:.*]] = stablehlo.slice %[[X]] [1:6:2]
// JVP: %[[SLICE1:.*]] = stablehlo.slice %[[DX]] [1:6:2]
// JVP: return %[[SLICE]], %[[SLICE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<7xf64>, %[[CT:.*]]: tensor<3xf64>)
// VJP: %[[SLICE:.*]] = stablehlo.slice %[[X]] [1:6:2]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[PAD:.*]] = stablehlo.pad %[[CT]], %[[C]], low = [1], high = [1], interior = [1]
// VJP: return %[[SLICE]], %[[PAD]]
