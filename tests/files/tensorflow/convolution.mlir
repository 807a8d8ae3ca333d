module @a_inference__lambda__445__.6 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @max_F32.2(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.maximum %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @region_0.3(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.maximum %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @region_1.4(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @Sum_reduction.5(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<1x6x6x1xf32>, %arg1: tensor<3x3x1x2xf32>, %arg2: tensor<2xf32>, %arg3: tensor<2xf32>, %arg4: tensor<2xf32>, %arg5: tensor<2xf32>, %arg6: tensor<2xf32>, %arg7: tensor<8x2xf32>, %arg8: tensor<2xf32>) -> tensor<f32> {
    %0 = stablehlo.reshape %arg0 : (tensor<1x6x6x1xf32>) -> tensor<1x6x6x1xf32>
    %1 = stablehlo.convolution(%0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x6x6x1xf32>, tensor<3x3x1x2xf32>) -> tensor<1x4x4x2xf32>
    %2 = stablehlo.reshape %arg2 : (tensor<2xf32>) -> tensor<1x1x1x2xf32>
    %3 = stablehlo.reshape %2 : (tensor<1x1x1x2xf32>) -> tensor<2xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [3] : (tensor<2xf32>) -> tensor<1x4x4x2xf32>
    %5 = stablehlo.add %1, %4 : tensor<1x4x4x2xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x4x4x2xf32>
    %7 = stablehlo.compare  GT, %5, %6 : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>) -> tensor<1x4x4x2xi1>
    %cst_0 = stablehlo.constant dense<1.05070102> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<1x4x4x2xf32>
    %9 = stablehlo.multiply %8, %5 : tensor<1x4x4x2xf32>
    %cst_1 = stablehlo.constant dense<1.75809932> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<1x4x4x2xf32>
    %11 = stablehlo.exponential_minus_one %5 : tensor<1x4x4x2xf32>
    %12 = stablehlo.multiply %10, %11 : tensor<1x4x4x2xf32>
    %13 = stablehlo.select %7, %9, %12 : tensor<1x4x4x2xi1>, tensor<1x4x4x2xf32>
    %cst_2 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %15 = stablehlo.add %arg4, %14 : tensor<2xf32>
    %16 = stablehlo.rsqrt %15 : tensor<2xf32>
    %17 = stablehlo.multiply %16, %arg5 : tensor<2xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<2xf32>) -> tensor<1x4x4x2xf32>
    %19 = stablehlo.multiply %13, %18 : tensor<1x4x4x2xf32>
    %20 = stablehlo.multiply %arg3, %17 : tensor<2xf32>
    %21 = stablehlo.subtract %arg6, %20 : tensor<2xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [3] : (tensor<2xf32>) -> tensor<1x4x4x2xf32>
    %23 = stablehlo.add %19, %22 : tensor<1x4x4x2xf32>
    %cst_3 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %24 = "stablehlo.reduce_window"(%23, %cst_3) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg9: tensor<f32>, %arg10: tensor<f32>):
      %49 = stablehlo.maximum %arg9, %arg10 : tensor<f32>
      stablehlo.return %49 : tensor<f32>
    }) : (tensor<1x4x4x2xf32>, tensor<f32>) -> tensor<1x2x2x2xf32>
    %25 = stablehlo.reshape %24 : (tensor<1x2x2x2xf32>) -> tensor<1x8xf32>
    %26 = stablehlo.dot %25, %arg7, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x8xf32>, tensor<8x2xf32>) -> tensor<1x2xf32>
    %27 = stablehlo.transpose %26, dims = [0, 1] : (tensor<1x2xf32>) -> tensor<1x2xf32>
    %28 = stablehlo.broadcast_in_dim %arg8, dims = [1] : (tensor<2xf32>) -> tensor<1x2xf32>
    %29 = stablehlo.add %27, %28 : tensor<1x2xf32>
    %cst_4 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %30 = stablehlo.reduce(%29 init: %cst_4) applies stablehlo.maximum across dimensions = [1] : (tensor<1x2xf32>, tensor<f32>) -> tensor<1xf32>
    %31 = stablehlo.reshape %30 : (tensor<1xf32>) -> tensor<1x1xf32>
    %32 = stablehlo.broadcast_in_dim %31, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x1xf32>
    %33 = stablehlo.reshape %32 : (tensor<1x1xf32>) -> tensor<1xf32>
    %34 = stablehlo.broadcast_in_dim %33, dims = [0] : (tensor<1xf32>) -> tensor<1x2xf32>
    %35 = stablehlo.subtract %29, %34 : tensor<1x2xf32>
    %36 = stablehlo.exponential %35 : tensor<1x2xf32>
    %cst_5 = stablehlo.constant dense<-0.000000e+00> : tensor<f32>
    %37 = stablehlo.reduce(%36 init: %cst_5) applies stablehlo.add across dimensions = [1] : (tensor<1x2xf32>, tensor<f32>) -> tensor<1xf32>
    %38 = stablehlo.reshape %37 : (tensor<1xf32>) -> tensor<1x1xf32>
    %39 = stablehlo.broadcast_in_dim %38, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x1xf32>
    %40 = stablehlo.reshape %39 : (tensor<1x1xf32>) -> tensor<1xf32>
    %41 = stablehlo.broadcast_in_dim %40, dims = [0] : (tensor<1xf32>) -> tensor<1x2xf32>
    %42 = stablehlo.divide %36, %41 : tensor<1x2xf32>
    %cst_6 = stablehlo.constant dense<[[0.841470957, 0.909297406]]> : tensor<1x2xf32>
    %43 = stablehlo.multiply %42, %cst_6 : tensor<1x2xf32>
    %44 = stablehlo.convert %43 : tensor<1x2xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %45 = stablehlo.convert %cst_7 : tensor<f32>
    %46 = stablehlo.reduce(%44 init: %45) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x2xf32>, tensor<f32>) -> tensor<f32>
    %47 = stablehlo.convert %46 : tensor<f32>
    %48 = stablehlo.reshape %47 : (tensor<f32>) -> tensor<f32>
    return %48 : tensor<f32>
  }
}
