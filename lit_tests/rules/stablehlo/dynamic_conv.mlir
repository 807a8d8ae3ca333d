// With a constant padding: a convolution.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<1x1x6xf64>, %k: tensor<1x1x2xf64>) -> tensor<1x1x6xf64> {
  %padding = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi32>
  %0 = "stablehlo.dynamic_conv"(%x, %k, %padding) {
    batch_group_count = 1 : i64, feature_group_count = 1 : i64,
    dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>}
    : (tensor<1x1x6xf64>, tensor<1x1x2xf64>, tensor<1x2xi32>) -> tensor<1x1x6xf64>
  return %0 : tensor<1x1x6xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<1x1x6xf64>, %[[K:.*]]: tensor<1x1x2xf64>, %[[DX:.*]]: tensor<1x1x6xf64>, %[[DK:.*]]: tensor<1x1x2xf64>)
// JVP: %[[C:.*]] = stablehlo.constant 
// JVP: %[[DYNAMIC_CONV:.*]] = "stablehlo.dynamic_conv"(%[[X]], %[[K]], %[[C]])
// JVP: %[[CONVOLUTION:.*]] = stablehlo.convolution(%[[X]], %[[K]]) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {pad = [[1, 0]]} {batch_group_count = 1
// JVP: %[[CONVOLUTION_2:.*]] = stablehlo.convolution(%[[DX]], %[[K]]) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {pad = [[1, 0]]} {batch_group_count = 1
// JVP: %[[CONVOLUTION_3:.*]] = stablehlo.convolution(%[[X]], %[[DK]]) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {pad = [[1, 0]]} {batch_group_count = 1
// JVP: %[[ADD:.*]] = stablehlo.add %[[CONVOLUTION_2]], %[[CONVOLUTION_3]]
// JVP: return %[[DYNAMIC_CONV]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<1x1x6xf64>, %[[K:.*]]: tensor<1x1x2xf64>, %[[CT:.*]]: tensor<1x1x6xf64>)
// VJP: %[[C:.*]] = stablehlo.constant 
// VJP: %[[DYNAMIC_CONV:.*]] = "stablehlo.dynamic_conv"(%[[X]], %[[K]], %[[C]])
// VJP: %[[REVERSE:.*]] = stablehlo.reverse %[[K]], dims = [2]
// VJP: %[[CONVOLUTION_2:.*]] = stablehlo.convolution(%[[CT]], %[[REVERSE]]) dim_numbers = [b, f, 0]x[i, o, 0]->[b, f, 0], window = {stride = [1], pad = [[0, 1]], lhs_dilate = [1], rhs_dilate = [1]} {batch_group_count = 1
// VJP: %[[CONVOLUTION_3:.*]] = stablehlo.convolution(%[[X]], %[[CT]]) dim_numbers = [f, b, 0]x[i, o, 0]->[f, b, 0], window = {stride = [1], pad = [[1, 0]], lhs_dilate = [1], rhs_dilate = [1]} {batch_group_count = 1
// VJP: return %[[DYNAMIC_CONV]], %[[CONVOLUTION_2]], %[[CONVOLUTION_3]]
