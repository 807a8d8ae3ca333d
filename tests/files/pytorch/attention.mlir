module @IrToHlo.96 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<4x4xf32>, %arg2: tensor<12xf32>, %arg3: tensor<12x4xf32>, %arg4: tensor<1x3x4xf32>) -> tensor<f32> {
    %cst = stablehlo.constant dense<[0.841470957, 0.909297406, 1.411200e-01, -0.756802499, -0.958924293, -0.279415488, 0.656986594, 0.989358246, 0.412118495, -0.54402113, -0.999990224, -0.536572933]> : tensor<12xf32>
    %cst_0 = stablehlo.constant dense<0.840896427> : tensor<1x2x2x3xf32>
    %cst_1 = stablehlo.constant dense<0.840896427> : tensor<1x2x3x2xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_3 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reshape %arg4 : (tensor<1x3x4xf32>) -> tensor<3x4xf32>
    %1 = stablehlo.transpose %arg3, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[4,12]{0,1}"} : (tensor<12x4xf32>) -> tensor<4x12xf32>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x4xf32>, tensor<4x12xf32>) -> tensor<3x12xf32>
    %3 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<12xf32>) -> tensor<3x12xf32>
    %4 = stablehlo.add %2, %3 : tensor<3x12xf32>
    %5 = stablehlo.reshape %4 : (tensor<3x12xf32>) -> tensor<1x3x1x3x4xf32>
    %6 = stablehlo.transpose %5, dims = [3, 1, 2, 0, 4] {result_layout = dense<[4, 0, 2, 1, 3]> : tensor<5xindex>, xla_shape = "f32[3,3,1,1,4]{4,0,2,1,3}"} : (tensor<1x3x1x3x4xf32>) -> tensor<3x3x1x1x4xf32>
    %7 = stablehlo.reshape %6 : (tensor<3x3x1x1x4xf32>) -> tensor<3x3x1x4xf32>
    %8 = stablehlo.slice %7 [0:1, 0:3, 0:1, 0:4] : (tensor<3x3x1x4xf32>) -> tensor<1x3x1x4xf32>
    %9 = stablehlo.reshape %8 : (tensor<1x3x1x4xf32>) -> tensor<3x2x2xf32>
    %10 = stablehlo.transpose %9, dims = [1, 0, 2] {result_layout = dense<[2, 0, 1]> : tensor<3xindex>, xla_shape = "f32[2,3,2]{2,0,1}"} : (tensor<3x2x2xf32>) -> tensor<2x3x2xf32>
    %11 = stablehlo.reshape %10 : (tensor<2x3x2xf32>) -> tensor<1x2x3x2xf32>
    %12 = stablehlo.multiply %11, %cst_1 : tensor<1x2x3x2xf32>
    %13 = stablehlo.reshape %12 : (tensor<1x2x3x2xf32>) -> tensor<2x3x2xf32>
    %14 = stablehlo.slice %7 [1:2, 0:3, 0:1, 0:4] : (tensor<3x3x1x4xf32>) -> tensor<1x3x1x4xf32>
    %15 = stablehlo.reshape %14 : (tensor<1x3x1x4xf32>) -> tensor<3x2x2xf32>
    %16 = stablehlo.transpose %15, dims = [1, 0, 2] {result_layout = dense<[2, 0, 1]> : tensor<3xindex>, xla_shape = "f32[2,3,2]{2,0,1}"} : (tensor<3x2x2xf32>) -> tensor<2x3x2xf32>
    %17 = stablehlo.reshape %16 : (tensor<2x3x2xf32>) -> tensor<1x2x3x2xf32>
    %18 = stablehlo.transpose %17, dims = [0, 1, 3, 2] {result_layout = dense<[2, 3, 1, 0]> : tensor<4xindex>, xla_shape = "f32[1,2,2,3]{2,3,1,0}"} : (tensor<1x2x3x2xf32>) -> tensor<1x2x2x3xf32>
    %19 = stablehlo.multiply %18, %cst_0 : tensor<1x2x2x3xf32>
    %20 = stablehlo.reshape %19 : (tensor<1x2x2x3xf32>) -> tensor<2x2x3xf32>
    %21 = stablehlo.dot_general %13, %20, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x3x2xf32>, tensor<2x2x3xf32>) -> tensor<2x3x3xf32>
    %22 = stablehlo.reshape %21 : (tensor<2x3x3xf32>) -> tensor<1x2x3x3xf32>
    %23 = stablehlo.reduce(%22 init: %cst_3) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x3x3xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x3xf32>
    %25 = stablehlo.subtract %22, %24 : tensor<1x2x3x3xf32>
    %26 = stablehlo.exponential %25 : tensor<1x2x3x3xf32>
    %27 = stablehlo.reduce(%26 init: %cst_2) applies stablehlo.add across dimensions = [3] : (tensor<1x2x3x3xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x3xf32>
    %29 = stablehlo.divide %26, %28 : tensor<1x2x3x3xf32>
    %30 = stablehlo.reshape %29 : (tensor<1x2x3x3xf32>) -> tensor<2x3x3xf32>
    %31 = stablehlo.slice %7 [2:3, 0:3, 0:1, 0:4] : (tensor<3x3x1x4xf32>) -> tensor<1x3x1x4xf32>
    %32 = stablehlo.reshape %31 : (tensor<1x3x1x4xf32>) -> tensor<3x2x2xf32>
    %33 = stablehlo.transpose %32, dims = [1, 0, 2] {result_layout = dense<[2, 0, 1]> : tensor<3xindex>, xla_shape = "f32[2,3,2]{2,0,1}"} : (tensor<3x2x2xf32>) -> tensor<2x3x2xf32>
    %34 = stablehlo.dot_general %30, %33, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x3x3xf32>, tensor<2x3x2xf32>) -> tensor<2x3x2xf32>
    %35 = stablehlo.reshape %34 : (tensor<2x3x2xf32>) -> tensor<1x2x3x2xf32>
    %36 = stablehlo.transpose %35, dims = [2, 0, 1, 3] {result_layout = dense<[3, 0, 2, 1]> : tensor<4xindex>, xla_shape = "f32[3,1,2,2]{3,0,2,1}"} : (tensor<1x2x3x2xf32>) -> tensor<3x1x2x2xf32>
    %37 = stablehlo.reshape %36 : (tensor<3x1x2x2xf32>) -> tensor<3x4xf32>
    %38 = stablehlo.transpose %arg1, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[4,4]{0,1}"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %39 = stablehlo.dot_general %37, %38, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
    %40 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>
    %41 = stablehlo.add %39, %40 : tensor<3x4xf32>
    %42 = stablehlo.reshape %41 : (tensor<3x4xf32>) -> tensor<12xf32>
    %43 = stablehlo.multiply %42, %cst : tensor<12xf32>
    %44 = stablehlo.reduce(%43 init: %cst_2) applies stablehlo.add across dimensions = [0] : (tensor<12xf32>, tensor<f32>) -> tensor<f32>
    return %44 : tensor<f32>
  }
}
