module @a_inference__lambda__1585__.2 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @Sum_reduction.1(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<3x3xf32>) -> tensor<f32> {
    %0 = stablehlo.iota dim = 0 : tensor<3xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<3xi32>
    %2 = stablehlo.add %0, %1 : tensor<3xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<3xi32>) -> tensor<3x3xi32>
    %4 = stablehlo.iota dim = 0 : tensor<3xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [1] : (tensor<3xi32>) -> tensor<3x3xi32>
    %6 = stablehlo.compare  GE, %3, %5 : (tensor<3x3xi32>, tensor<3x3xi32>) -> tensor<3x3xi1>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<3x3xi1>) -> tensor<3x3xi1>
    %8 = stablehlo.reshape %arg0 : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %9 = stablehlo.transpose %8, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[3,3]{0,1}"} : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %10 = stablehlo.dot %8, %9, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
    %11 = stablehlo.transpose %10, dims = [0, 1] : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %cst = stablehlo.constant dense<[[1.000000e+00, 0.000000e+00, 0.000000e+00], [0.000000e+00, 1.000000e+00, 0.000000e+00], [0.000000e+00, 0.000000e+00, 1.000000e+00]]> : tensor<3x3xf32>
    %12 = stablehlo.add %11, %cst : tensor<3x3xf32>
    %13 = stablehlo.cholesky %12, lower = true : tensor<3x3xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<3x3xf32>
    %15 = stablehlo.select %7, %13, %14 : tensor<3x3xi1>, tensor<3x3xf32>
    %cst_1 = stablehlo.constant dense<[[0.841470957, 0.909297406, 1.411200e-01], [-0.756802499, -0.958924293, -0.279415488], [0.656986594, 0.989358246, 0.412118495]]> : tensor<3x3xf32>
    %16 = stablehlo.multiply %15, %cst_1 : tensor<3x3xf32>
    %17 = stablehlo.convert %16 : tensor<3x3xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %18 = stablehlo.convert %cst_2 : tensor<f32>
    %19 = stablehlo.reduce(%17 init: %18) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x3xf32>, tensor<f32>) -> tensor<f32>
    %20 = stablehlo.convert %19 : tensor<f32>
    %21 = stablehlo.reshape %20 : (tensor<f32>) -> tensor<f32>
    return %21 : tensor<f32>
  }
}
