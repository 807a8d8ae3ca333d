// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<1x2x9xf64>, %k: tensor<3x2x2xf64>) -> tensor<1x3x4xf64> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [2], pad = [[0, 1]], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x2x9xf64>, tensor<3x2x2xf64>) -> tensor<1x3x4xf64>
  return %0 : tensor<1x3x4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[K:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DK:.*]]: {{.*}})
// JVP: %[[CONVOLUTION:.*]] = stablehlo.convolution(%[[X]], %[[K]]) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [2], pad = {{\[\[}}0, 1]], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
// JVP: %[[CONVOLUTION1:.*]] = stablehlo.convolution(%[[DX]], %[[K]]) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [2], pad = {{\[\[}}0, 1]], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
// JVP: %[[CONVOLUTION2:.*]] = stablehlo.convolution(%[[X]], %[[DK]]) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [2], pad = {{\[\[}}0, 1]], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
// JVP: %[[ADD:.*]] = stablehlo.add %[[CONVOLUTION1]], %[[CONVOLUTION2]]
// JVP: return %[[CONVOLUTION]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[K:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[CONVOLUTION:.*]] = stablehlo.convolution(%[[X]], %[[K]]) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [2], pad = {{\[\[}}0, 1]], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
// VJP: %[[REVERSE:.*]] = stablehlo.reverse %[[K]], dims = [2]
// VJP: %[[CONVOLUTION1:.*]] = stablehlo.convolution(%[[CT]], %[[REVERSE]]) dim_numbers = [b, f, 0]x[i, o, 0]->[b, f, 0], window = {stride = [1], pad = {{\[\[}}2, 2]], lhs_dilate = [2], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
// VJP: %[[CONVOLUTION2:.*]] = stablehlo.convolution(%[[X]], %[[CT]]) dim_numbers = [f, b, 0]x[i, o, 0]->[f, b, 0], window = {stride = [2], pad = {{\[\[}}0, 0]], lhs_dilate = [1], rhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
// VJP: return %[[CONVOLUTION]], %[[CONVOLUTION1]], %[[CONVOLUTION2]]
