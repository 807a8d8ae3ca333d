module @a_inference__lambda__1346__.4 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @region_0.1(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.maximum %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @region_1.2(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @Sum_reduction.3(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<1x3x4xf32>, %arg1: tensor<4x2x2xf32>, %arg2: tensor<2x2xf32>, %arg3: tensor<4x2x2xf32>, %arg4: tensor<2x2xf32>, %arg5: tensor<4x2x2xf32>, %arg6: tensor<2x2xf32>, %arg7: tensor<2x2x4xf32>, %arg8: tensor<4xf32>) -> tensor<f32> {
    %c = stablehlo.constant dense<[1, 3, 2, 2]> : tensor<4xi32>
    %c_0 = stablehlo.constant dense<[1, 3, 2, 2]> : tensor<4xi32>
    %0 = stablehlo.slice %c_0 [3:4] : (tensor<4xi32>) -> tensor<1xi32>
    %1 = stablehlo.reshape %0 : (tensor<1xi32>) -> tensor<i32>
    %2 = stablehlo.reshape %arg0 : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
    %3 = stablehlo.reshape %arg1 : (tensor<4x2x2xf32>) -> tensor<4x4xf32>
    %4 = stablehlo.dot_general %2, %3, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x3x4xf32>, tensor<4x4xf32>) -> tensor<1x3x4xf32>
    %5 = stablehlo.transpose %4, dims = [0, 1, 2] : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
    %6 = stablehlo.reshape %5 : (tensor<1x3x4xf32>) -> tensor<1x3x2x2xf32>
    %7 = stablehlo.broadcast_in_dim %arg2, dims = [2, 3] : (tensor<2x2xf32>) -> tensor<1x3x2x2xf32>
    %8 = stablehlo.add %6, %7 : tensor<1x3x2x2xf32>
    %9 = stablehlo.reshape %arg3 : (tensor<4x2x2xf32>) -> tensor<4x4xf32>
    %10 = stablehlo.dot_general %2, %9, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x3x4xf32>, tensor<4x4xf32>) -> tensor<1x3x4xf32>
    %11 = stablehlo.transpose %10, dims = [0, 1, 2] : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
    %12 = stablehlo.reshape %11 : (tensor<1x3x4xf32>) -> tensor<1x3x2x2xf32>
    %13 = stablehlo.broadcast_in_dim %arg4, dims = [2, 3] : (tensor<2x2xf32>) -> tensor<1x3x2x2xf32>
    %14 = stablehlo.add %12, %13 : tensor<1x3x2x2xf32>
    %15 = stablehlo.dot_general %8, %14, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x3x2x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x2x3x3xf32>
    %16 = stablehlo.transpose %15, dims = [0, 1, 2, 3] : (tensor<1x2x3x3xf32>) -> tensor<1x2x3x3xf32>
    %cst = stablehlo.constant dense<0.707106769> : tensor<f32>
    %17 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x2x3x3xf32>
    %18 = stablehlo.multiply %16, %17 : tensor<1x2x3x3xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %19 = stablehlo.reduce(%18 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x3x3xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %20 = stablehlo.reshape %19 : (tensor<1x2x3xf32>) -> tensor<1x2x3x1xf32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [0, 1, 2, 3] : (tensor<1x2x3x1xf32>) -> tensor<1x2x3x1xf32>
    %22 = stablehlo.reshape %21 : (tensor<1x2x3x1xf32>) -> tensor<1x2x3xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x3xf32>
    %24 = stablehlo.subtract %18, %23 : tensor<1x2x3x3xf32>
    %25 = stablehlo.exponential %24 : tensor<1x2x3x3xf32>
    %cst_2 = stablehlo.constant dense<-0.000000e+00> : tensor<f32>
    %26 = stablehlo.reduce(%25 init: %cst_2) applies stablehlo.add across dimensions = [3] : (tensor<1x2x3x3xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %27 = stablehlo.reshape %26 : (tensor<1x2x3xf32>) -> tensor<1x2x3x1xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1, 2, 3] : (tensor<1x2x3x1xf32>) -> tensor<1x2x3x1xf32>
    %29 = stablehlo.reshape %28 : (tensor<1x2x3x1xf32>) -> tensor<1x2x3xf32>
    %30 = stablehlo.broadcast_in_dim %29, dims = [0, 1, 2] : (tensor<1x2x3xf32>) -> tensor<1x2x3x3xf32>
    %31 = stablehlo.divide %25, %30 : tensor<1x2x3x3xf32>
    %32 = stablehlo.reshape %arg5 : (tensor<4x2x2xf32>) -> tensor<4x4xf32>
    %33 = stablehlo.dot_general %2, %32, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x3x4xf32>, tensor<4x4xf32>) -> tensor<1x3x4xf32>
    %34 = stablehlo.transpose %33, dims = [0, 1, 2] : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
    %35 = stablehlo.reshape %34 : (tensor<1x3x4xf32>) -> tensor<1x3x2x2xf32>
    %36 = stablehlo.broadcast_in_dim %arg6, dims = [2, 3] : (tensor<2x2xf32>) -> tensor<1x3x2x2xf32>
    %37 = stablehlo.add %35, %36 : tensor<1x3x2x2xf32>
    %38 = stablehlo.dot_general %31, %37, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x2x3x3xf32>, tensor<1x3x2x2xf32>) -> tensor<1x2x3x2xf32>
    %39 = stablehlo.transpose %38, dims = [0, 2, 1, 3] {result_layout = dense<[3, 1, 2, 0]> : tensor<4xindex>, xla_shape = "f32[1,3,2,2]{3,1,2,0}"} : (tensor<1x2x3x2xf32>) -> tensor<1x3x2x2xf32>
    %40 = stablehlo.reshape %39 : (tensor<1x3x2x2xf32>) -> tensor<1x3x4xf32>
    %41 = stablehlo.reshape %arg7 : (tensor<2x2x4xf32>) -> tensor<4x4xf32>
    %42 = stablehlo.dot_general %40, %41, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x3x4xf32>, tensor<4x4xf32>) -> tensor<1x3x4xf32>
    %43 = stablehlo.transpose %42, dims = [0, 1, 2] : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
    %44 = stablehlo.broadcast_in_dim %arg8, dims = [2] : (tensor<4xf32>) -> tensor<1x3x4xf32>
    %45 = stablehlo.add %43, %44 : tensor<1x3x4xf32>
    %cst_3 = stablehlo.constant dense<[[[0.841470957, 0.909297406, 1.411200e-01, -0.756802499], [-0.958924293, -0.279415488, 0.656986594, 0.989358246], [0.412118495, -0.54402113, -0.999990224, -0.536572933]]]> : tensor<1x3x4xf32>
    %46 = stablehlo.multiply %45, %cst_3 : tensor<1x3x4xf32>
    %47 = stablehlo.convert %46 : tensor<1x3x4xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %48 = stablehlo.convert %cst_4 : tensor<f32>
    %49 = stablehlo.reduce(%47 init: %48) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<1x3x4xf32>, tensor<f32>) -> tensor<f32>
    %50 = stablehlo.convert %49 : tensor<f32>
    %51 = stablehlo.reshape %50 : (tensor<f32>) -> tensor<f32>
    return %51 : tensor<f32>
  }
}
