// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3xf64>, %v: tensor<f64>) -> tensor<7xf64> {
  %0 = stablehlo.pad %x, %v, low = [-1], high = [3], interior = [1] : (tensor<3xf64>, tensor<f64>) -> tensor<7xf64>
  return %0 : tensor<7xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[V:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DV:.*]]: {{.*}})
// JVP: %[[PAD:.*]] = stablehlo.pad %[[X]], %[[V]], low = [-1], high = [3], interior = [1]
// JVP: %[[PAD1:.*]] = stablehlo.pad %[[DX]], %[[DV]], low = [-1], high = [3], interior = [1]
// JVP: return %[[PAD]], %[[PAD1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[V:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[PAD:.*]] = stablehlo.pad %[[X]], %[[V]], low = [-1], high = [3], interior = [1]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[PAD1:.*]] = stablehlo.pad %[[CT]], %[[C]], low = [1], high = [-3], interior = [0]
// VJP: %[[SLICE:.*]] = stablehlo.slice %[[PAD1]] [0:5:2]
// VJP: %[[INSIDE:.*]] = stablehlo.pad %[[SLICE]], %[[C]], low = [-1], high = [3], interior = [1]
// VJP: %[[REST:.*]] = stablehlo.subtract %[[CT]], %[[INSIDE]]
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[REST]] init: %[[C]]) applies stablehlo.add across dimensions = [0]
// VJP: return %[[PAD]], %[[SLICE]], %[[REDUCE]]
