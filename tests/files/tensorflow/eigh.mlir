module @a_inference__lambda__1784__.3 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @Sum_reduction.1(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @Sum_1_reduction.2(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<3x3xf32>) -> tensor<f32> {
    %0 = stablehlo.reshape %arg0 : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %1 = stablehlo.transpose %0, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[3,3]{0,1}"} : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %2 = stablehlo.dot %0, %1, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
    %3 = stablehlo.transpose %2, dims = [0, 1] : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %cst = stablehlo.constant dense<[[1.000000e+00, 0.000000e+00, 0.000000e+00], [0.000000e+00, 1.000000e+00, 0.000000e+00], [0.000000e+00, 0.000000e+00, 1.000000e+00]]> : tensor<3x3xf32>
    %4 = stablehlo.add %3, %cst : tensor<3x3xf32>
    %5 = stablehlo.custom_call @Eigh(%4) {backend_config = "1,1,4,0.000001", xla_shape = "(f32[3,3]{1,0}, f32[3]{0})"} : (tensor<3x3xf32>) -> tuple<tensor<3x3xf32>, tensor<3xf32>>
    %6 = stablehlo.get_tuple_element %5[1] : (tuple<tensor<3x3xf32>, tensor<3xf32>>) -> tensor<3xf32>
    %cst_0 = stablehlo.constant dense<[0.841470957, 0.909297406, 1.411200e-01]> : tensor<3xf32>
    %7 = stablehlo.multiply %6, %cst_0 : tensor<3xf32>
    %8 = stablehlo.convert %7 : tensor<3xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.convert %cst_1 : tensor<f32>
    %10 = stablehlo.reduce(%8 init: %9) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    %11 = stablehlo.convert %10 : tensor<f32>
    %12 = stablehlo.get_tuple_element %5[0] : (tuple<tensor<3x3xf32>, tensor<3xf32>>) -> tensor<3x3xf32>
    %cst_2 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<3x3xf32>
    %14 = stablehlo.power %12, %13 : tensor<3x3xf32>
    %cst_3 = stablehlo.constant dense<[[0.841470957, 0.909297406, 1.411200e-01], [-0.756802499, -0.958924293, -0.279415488], [0.656986594, 0.989358246, 0.412118495]]> : tensor<3x3xf32>
    %15 = stablehlo.multiply %14, %cst_3 : tensor<3x3xf32>
    %16 = stablehlo.convert %15 : tensor<3x3xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %17 = stablehlo.convert %cst_4 : tensor<f32>
    %18 = stablehlo.reduce(%16 init: %17) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x3xf32>, tensor<f32>) -> tensor<f32>
    %19 = stablehlo.convert %18 : tensor<f32>
    %20 = stablehlo.add %11, %19 : tensor<f32>
    %21 = stablehlo.reshape %20 : (tensor<f32>) -> tensor<f32>
    return %21 : tensor<f32>
  }
}
