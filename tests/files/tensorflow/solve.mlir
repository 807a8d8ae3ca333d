module @a_inference__lambda__1695__.2 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @Sum_reduction.1(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<3x3xf32>) -> tensor<f32> {
    %0 = stablehlo.iota dim = 0 : tensor<3xi32>
    %c = stablehlo.constant dense<-1> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<3xi32>
    %2 = stablehlo.add %0, %1 : tensor<3xi32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<3xi32>) -> tensor<3x3xi32>
    %4 = stablehlo.iota dim = 0 : tensor<3xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [1] : (tensor<3xi32>) -> tensor<3x3xi32>
    %6 = stablehlo.compare  GE, %3, %5 : (tensor<3x3xi32>, tensor<3x3xi32>) -> tensor<3x3xi1>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<3x3xi1>) -> tensor<3x3xi1>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x3xf32>
    %9 = stablehlo.reshape %arg0 : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %10 = stablehlo.transpose %9, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[3,3]{0,1}"} : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %11 = stablehlo.dot %9, %10, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
    %12 = stablehlo.transpose %11, dims = [0, 1] : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %cst_0 = stablehlo.constant dense<[[1.000000e+00, 0.000000e+00, 0.000000e+00], [0.000000e+00, 1.000000e+00, 0.000000e+00], [0.000000e+00, 0.000000e+00, 1.000000e+00]]> : tensor<3x3xf32>
    %13 = stablehlo.add %12, %cst_0 : tensor<3x3xf32>
    %14 = stablehlo.custom_call @Qr(%13) {backend_config = "", xla_shape = "(f32[3,3]{1,0}, f32[3]{0})"} : (tensor<3x3xf32>) -> tuple<tensor<3x3xf32>, tensor<3xf32>>
    %15 = stablehlo.get_tuple_element %14[0] : (tuple<tensor<3x3xf32>, tensor<3xf32>>) -> tensor<3x3xf32>
    %16 = stablehlo.slice %15 [0:3, 0:3] : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %17 = stablehlo.select %7, %8, %16 : tensor<3x3xi1>, tensor<3x3xf32>
    %18 = stablehlo.get_tuple_element %14[1] : (tuple<tensor<3x3xf32>, tensor<3xf32>>) -> tensor<3xf32>
    %19 = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%15, %18) {backend_config = ""} : (tensor<3x3xf32>, tensor<3xf32>) -> tensor<3x3xf32>
    %20 = stablehlo.slice %19 [0:3, 0:3] : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %21 = stablehlo.transpose %20, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[3,3]{0,1}"} : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %22 = "stablehlo.triangular_solve"(%17, %21) <{left_side = true, lower = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "f32[3,3]{0,1}"} : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
    %23 = stablehlo.dot %22, %9, precision = [HIGHEST, HIGHEST] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
    %24 = stablehlo.transpose %23, dims = [0, 1] : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %cst_1 = stablehlo.constant dense<[[0.841470957, 0.909297406, 1.411200e-01], [-0.756802499, -0.958924293, -0.279415488], [0.656986594, 0.989358246, 0.412118495]]> : tensor<3x3xf32>
    %25 = stablehlo.multiply %24, %cst_1 : tensor<3x3xf32>
    %26 = stablehlo.convert %25 : tensor<3x3xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.convert %cst_2 : tensor<f32>
    %28 = stablehlo.reduce(%26 init: %27) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x3xf32>, tensor<f32>) -> tensor<f32>
    %29 = stablehlo.convert %28 : tensor<f32>
    %30 = stablehlo.reshape %29 : (tensor<f32>) -> tensor<f32>
    return %30 : tensor<f32>
  }
}
