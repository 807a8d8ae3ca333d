module @a_inference__lambda__1961__.9 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @while_Sum_reduction.4(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @while_cond_1925_const_0__.5(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<4xf32>) -> tensor<i1> {
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %1 = stablehlo.power %arg2, %0 : tensor<4xf32>
    %2 = stablehlo.convert %1 : tensor<4xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.convert %cst_0 : tensor<f32>
    %4 = stablehlo.reduce(%2 init: %3) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %5 = stablehlo.convert %4 : tensor<f32>
    %cst_1 = stablehlo.constant dense<9.900000e+01> : tensor<f32>
    %6 = stablehlo.compare  LT, %5, %cst_1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %7 = stablehlo.reshape %6 : (tensor<i1>) -> tensor<i1>
    return %7 : tensor<i1>
  }
  func.func private @cond_wrapper.6(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<4xf32>) -> tensor<i1> {
    %0 = call @while_cond_1925_const_0__.5(%arg0, %arg1, %arg2) : (tensor<i32>, tensor<i32>, tensor<4xf32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
  func.func private @while_body_1926_const_0__.7(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<4xf32>) -> (tensor<i32>, tensor<i32>, tensor<4xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg0, %c : tensor<i32>
    %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<i32>
    %2 = stablehlo.reshape %arg1 : (tensor<i32>) -> tensor<i32>
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %4 = stablehlo.multiply %3, %arg2 : tensor<4xf32>
    %5 = stablehlo.sine %arg2 : tensor<4xf32>
    %6 = stablehlo.add %4, %5 : tensor<4xf32>
    %7 = stablehlo.reshape %6 : (tensor<4xf32>) -> tensor<4xf32>
    return %1, %2, %7 : tensor<i32>, tensor<i32>, tensor<4xf32>
  }
  func.func private @Sum_reduction.8(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<4xf32>) -> tensor<f32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<-1> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %c_2 = stablehlo.constant dense<-1> : tensor<i32>
    %0 = stablehlo.reshape %arg0 : (tensor<4xf32>) -> tensor<4xf32>
    %1:3 = stablehlo.while(%iterArg = %c_1, %iterArg_4 = %c_2, %iterArg_5 = %0) : tensor<i32>, tensor<i32>, tensor<4xf32>
    cond {
      %8 = func.call @while_cond_1925_const_0__.5(%iterArg, %iterArg_4, %iterArg_5) : (tensor<i32>, tensor<i32>, tensor<4xf32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %c_6 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %iterArg, %c_6 : tensor<i32>
      %9 = stablehlo.reshape %8 : (tensor<i32>) -> tensor<i32>
      %10 = stablehlo.reshape %iterArg_4 : (tensor<i32>) -> tensor<i32>
      %cst_7 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %11 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %12 = stablehlo.multiply %11, %iterArg_5 : tensor<4xf32>
      %13 = stablehlo.sine %iterArg_5 : tensor<4xf32>
      %14 = stablehlo.add %12, %13 : tensor<4xf32>
      %15 = stablehlo.reshape %14 : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %9, %10, %15 : tensor<i32>, tensor<i32>, tensor<4xf32>
    }
    %cst = stablehlo.constant dense<[0.841470957, 0.909297406, 1.411200e-01, -0.756802499]> : tensor<4xf32>
    %2 = stablehlo.multiply %1#2, %cst : tensor<4xf32>
    %3 = stablehlo.convert %2 : tensor<4xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.convert %cst_3 : tensor<f32>
    %5 = stablehlo.reduce(%3 init: %4) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %6 = stablehlo.convert %5 : tensor<f32>
    %7 = stablehlo.reshape %6 : (tensor<f32>) -> tensor<f32>
    return %7 : tensor<f32>
  }
}
