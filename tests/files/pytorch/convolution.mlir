module @IrToHlo.88 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func @main(%arg0: tensor<2xf32>, %arg1: tensor<2x1x3x3xf32>, %arg2: tensor<1x1x6x6xf32>) -> tensor<f32> {
    %cst = stablehlo.constant dense<[0.841470957, 0.909297406, 1.411200e-01, -0.756802499, -0.958924293, -0.279415488, 0.656986594, 0.989358246]> : tensor<8xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<1x2x4x4xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.convolution(%arg2, %arg1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x1x6x6xf32>, tensor<2x1x3x3xf32>) -> tensor<1x2x4x4xf32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<2xf32>) -> tensor<1x2x4x4xf32>
    %2 = stablehlo.add %0, %1 : tensor<1x2x4x4xf32>
    %3 = stablehlo.maximum %2, %cst_0 : tensor<1x2x4x4xf32>
    %4 = "stablehlo.reduce_window"(%3, %cst_1) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 1, 2, 2>, window_strides = array<i64: 1, 1, 2, 2>}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %15 = stablehlo.maximum %arg3, %arg4 : tensor<f32>
      stablehlo.return %15 : tensor<f32>
    }) : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x2x2xf32>
    %5 = stablehlo.reduce(%4 init: %cst_1) applies stablehlo.maximum across dimensions = [1] : (tensor<1x2x2x2xf32>, tensor<f32>) -> tensor<1x2x2xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 2, 3] : (tensor<1x2x2xf32>) -> tensor<1x2x2x2xf32>
    %7 = stablehlo.subtract %4, %6 : tensor<1x2x2x2xf32>
    %8 = stablehlo.exponential %7 : tensor<1x2x2x2xf32>
    %9 = stablehlo.reduce(%8 init: %cst_2) applies stablehlo.add across dimensions = [1] : (tensor<1x2x2x2xf32>, tensor<f32>) -> tensor<1x2x2xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 2, 3] : (tensor<1x2x2xf32>) -> tensor<1x2x2x2xf32>
    %11 = stablehlo.divide %8, %10 : tensor<1x2x2x2xf32>
    %12 = stablehlo.reshape %11 : (tensor<1x2x2x2xf32>) -> tensor<8xf32>
    %13 = stablehlo.multiply %12, %cst : tensor<8xf32>
    %14 = stablehlo.reduce(%13 init: %cst_2) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    return %14 : tensor<f32>
  }
}
