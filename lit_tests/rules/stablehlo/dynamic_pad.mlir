// With constant paddings: a pad.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3xf64>, %value: tensor<f64>) -> tensor<6xf64> {
  %low = stablehlo.constant dense<1> : tensor<1xi32>
  %high = stablehlo.constant dense<2> : tensor<1xi32>
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %0 = stablehlo.dynamic_pad %x, %value, %low, %high, %none
    : (tensor<3xf64>, tensor<f64>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<6xf64>
  return %0 : tensor<6xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[VALUE:.*]]: tensor<f64>, %[[DX:.*]]: tensor<3xf64>, %[[DVALUE:.*]]: tensor<f64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<1>
// JVP: %[[C_2:.*]] = stablehlo.constant dense<2>
// JVP: %[[C_3:.*]] = stablehlo.constant dense<0>
// JVP: %[[DYNAMIC_PAD:.*]] = stablehlo.dynamic_pad %[[X]], %[[VALUE]], %[[C]], %[[C_2]], %[[C_3]]
// JVP: %[[PAD:.*]] = stablehlo.pad %[[X]], %[[VALUE]], low = [1], high = [2], interior = [0]
// JVP: %[[PAD_2:.*]] = stablehlo.pad %[[DX]], %[[DVALUE]], low = [1], high = [2], interior = [0]
// JVP: return %[[DYNAMIC_PAD]], %[[PAD_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[VALUE:.*]]: tensor<f64>, %[[CT:.*]]: tensor<6xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<1>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<2>
// VJP: %[[C_3:.*]] = stablehlo.constant dense<0>
// VJP: %[[DYNAMIC_PAD:.*]] = stablehlo.dynamic_pad %[[X]], %[[VALUE]], %[[C]], %[[C_2]], %[[C_3]]
// VJP: %[[C_4:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[PAD_2:.*]] = stablehlo.pad %[[CT]], %[[C_4]], low = [-1], high = [-2], interior = [0]
// VJP: %[[SLICE:.*]] = stablehlo.slice %[[PAD_2]] [0:3]
// VJP: %[[INSIDE:.*]] = stablehlo.pad %[[SLICE]], %[[C_4]], low = [1], high = [2], interior = [0]
// VJP: %[[REST:.*]] = stablehlo.subtract %[[CT]], %[[INSIDE]]
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[REST]] init: %[[C_4]]) applies stablehlo.add across dimensions = [0]
// VJP: return %[[DYNAMIC_PAD]], %[[SLICE]], %[[REDUCE]]
