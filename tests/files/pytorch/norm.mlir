module @IrToHlo.65 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4x3xf32>, %arg3: tensor<2x3xf32>, %arg4: tensor<4xf32>) -> tensor<f32> {
    %cst = stablehlo.constant dense<[0.841470957, 0.909297406, 1.411200e-01, -0.756802499, -0.958924293, -0.279415488, 0.656986594, 0.989358246]> : tensor<8xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<2xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<2xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.transpose %arg2, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[3,4]{0,1}"} : (tensor<4x3xf32>) -> tensor<3x4xf32>
    %1 = stablehlo.dot_general %arg3, %0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %2 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
    %3 = stablehlo.add %1, %2 : tensor<2x4xf32>
    %4 = stablehlo.reshape %3 : (tensor<2x4xf32>) -> tensor<1x2x4xf32>
    %output, %batch_mean, %batch_var = "stablehlo.batch_norm_training"(%4, %cst_1, %cst_0) <{epsilon = 9.99999974E-6 : f32, feature_index = 1 : i64}> : (tensor<1x2x4xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<1x2x4xf32>, tensor<2xf32>, tensor<2xf32>)
    %5 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
    %6 = stablehlo.reshape %output : (tensor<1x2x4xf32>) -> tensor<2x4xf32>
    %7 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
    %8 = stablehlo.multiply %6, %7 : tensor<2x4xf32>
    %9 = stablehlo.add %5, %8 : tensor<2x4xf32>
    %10 = stablehlo.logistic %9 : tensor<2x4xf32>
    %11 = stablehlo.multiply %9, %10 : tensor<2x4xf32>
    %12 = stablehlo.reshape %11 : (tensor<2x4xf32>) -> tensor<8xf32>
    %13 = stablehlo.multiply %12, %cst : tensor<8xf32>
    %14 = stablehlo.reduce(%13 init: %cst_2) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    return %14 : tensor<f32>
  }
}
