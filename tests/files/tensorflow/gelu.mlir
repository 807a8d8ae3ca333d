module @a_inference__lambda__169__.4 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @sequential_1_layer_normalization_1_moments_mean_reduction.1(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @sequential_1_layer_normalization_1_moments_variance_reduction.2(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @Sum_reduction.3(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3x3xf32>, %arg2: tensor<3xf32>, %arg3: tensor<3xf32>, %arg4: tensor<3xf32>) -> tensor<f32> {
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %1 = stablehlo.reshape %arg0 : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.dot %1, %arg1, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %3 = stablehlo.transpose %2, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %4 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %5 = stablehlo.add %3, %4 : tensor<2x3xf32>
    %6 = stablehlo.multiply %0, %5 : tensor<2x3xf32>
    %7 = stablehlo.negate %5 : tensor<2x3xf32>
    %cst_0 = stablehlo.constant dense<0.707106769> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %9 = stablehlo.multiply %7, %8 : tensor<2x3xf32>
    %10 = stablehlo.abs %9 : tensor<2x3xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %12 = stablehlo.compare  GT, %10, %11 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %14 = stablehlo.compare  LT, %9, %13 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    %cst_3 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %16 = stablehlo.multiply %9, %9 : tensor<2x3xf32>
    %17 = stablehlo.negate %16 : tensor<2x3xf32>
    %18 = stablehlo.exponential %17 : tensor<2x3xf32>
    %cst_4 = stablehlo.constant dense<0.102081165> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %cst_5 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %21 = stablehlo.divide %20, %16 : tensor<2x3xf32>
    %22 = stablehlo.multiply %19, %21 : tensor<2x3xf32>
    %cst_6 = stablehlo.constant dense<0.429206669> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %24 = stablehlo.add %22, %23 : tensor<2x3xf32>
    %25 = stablehlo.multiply %24, %21 : tensor<2x3xf32>
    %cst_7 = stablehlo.constant dense<0.323790789> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %27 = stablehlo.add %25, %26 : tensor<2x3xf32>
    %28 = stablehlo.multiply %27, %21 : tensor<2x3xf32>
    %cst_8 = stablehlo.constant dense<0.053971976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %30 = stablehlo.add %28, %29 : tensor<2x3xf32>
    %31 = stablehlo.abs %9 : tensor<2x3xf32>
    %cst_9 = stablehlo.constant dense<1.006000e+01> : tensor<f32>
    %32 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %33 = stablehlo.minimum %31, %32 : tensor<2x3xf32>
    %cst_10 = stablehlo.constant dense<0.0172516778> : tensor<f32>
    %34 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %35 = stablehlo.multiply %34, %21 : tensor<2x3xf32>
    %cst_11 = stablehlo.constant dense<0.391371638> : tensor<f32>
    %36 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %37 = stablehlo.add %35, %36 : tensor<2x3xf32>
    %38 = stablehlo.multiply %37, %21 : tensor<2x3xf32>
    %cst_12 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %39 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %40 = stablehlo.add %38, %39 : tensor<2x3xf32>
    %41 = stablehlo.multiply %40, %21 : tensor<2x3xf32>
    %cst_13 = stablehlo.constant dense<0.621732413> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %43 = stablehlo.add %41, %42 : tensor<2x3xf32>
    %44 = stablehlo.multiply %43, %21 : tensor<2x3xf32>
    %cst_14 = stablehlo.constant dense<0.095662862> : tensor<f32>
    %45 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %46 = stablehlo.add %44, %45 : tensor<2x3xf32>
    %47 = stablehlo.multiply %33, %46 : tensor<2x3xf32>
    %48 = stablehlo.divide %30, %47 : tensor<2x3xf32>
    %49 = stablehlo.multiply %18, %48 : tensor<2x3xf32>
    %50 = stablehlo.subtract %15, %49 : tensor<2x3xf32>
    %51 = stablehlo.select %14, %50, %49 : tensor<2x3xi1>, tensor<2x3xf32>
    %cst_15 = stablehlo.constant dense<5.61802299E-4> : tensor<f32>
    %52 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %53 = stablehlo.multiply %9, %9 : tensor<2x3xf32>
    %54 = stablehlo.multiply %52, %53 : tensor<2x3xf32>
    %cst_16 = stablehlo.constant dense<-0.00491381669> : tensor<f32>
    %55 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %56 = stablehlo.add %54, %55 : tensor<2x3xf32>
    %57 = stablehlo.multiply %56, %53 : tensor<2x3xf32>
    %cst_17 = stablehlo.constant dense<0.0267075151> : tensor<f32>
    %58 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %59 = stablehlo.add %57, %58 : tensor<2x3xf32>
    %60 = stablehlo.multiply %59, %53 : tensor<2x3xf32>
    %cst_18 = stablehlo.constant dense<-0.112800106> : tensor<f32>
    %61 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %62 = stablehlo.add %60, %61 : tensor<2x3xf32>
    %63 = stablehlo.multiply %62, %53 : tensor<2x3xf32>
    %cst_19 = stablehlo.constant dense<0.376122952> : tensor<f32>
    %64 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %65 = stablehlo.add %63, %64 : tensor<2x3xf32>
    %66 = stablehlo.multiply %65, %53 : tensor<2x3xf32>
    %cst_20 = stablehlo.constant dense<-1.12837911> : tensor<f32>
    %67 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %68 = stablehlo.add %66, %67 : tensor<2x3xf32>
    %69 = stablehlo.multiply %9, %68 : tensor<2x3xf32>
    %cst_21 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %70 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %71 = stablehlo.add %69, %70 : tensor<2x3xf32>
    %72 = stablehlo.select %12, %51, %71 : tensor<2x3xi1>, tensor<2x3xf32>
    %73 = stablehlo.multiply %6, %72 : tensor<2x3xf32>
    %74 = stablehlo.convert %73 : tensor<2x3xf32>
    %cst_22 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %75 = stablehlo.convert %cst_22 : tensor<f32>
    %76 = stablehlo.reduce(%74 init: %75) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %c = stablehlo.constant dense<3> : tensor<i32>
    %77 = stablehlo.convert %c : (tensor<i32>) -> tensor<f32>
    %78 = stablehlo.broadcast_in_dim %77, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %79 = stablehlo.divide %76, %78 : tensor<2xf32>
    %80 = stablehlo.convert %79 : tensor<2xf32>
    %81 = stablehlo.reshape %80 : (tensor<2xf32>) -> tensor<2x1xf32>
    %82 = stablehlo.reshape %81 : (tensor<2x1xf32>) -> tensor<2xf32>
    %83 = stablehlo.broadcast_in_dim %82, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
    %84 = stablehlo.subtract %73, %83 : tensor<2x3xf32>
    %85 = stablehlo.multiply %84, %84 : tensor<2x3xf32>
    %86 = stablehlo.convert %85 : tensor<2x3xf32>
    %cst_23 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %87 = stablehlo.convert %cst_23 : tensor<f32>
    %88 = stablehlo.reduce(%86 init: %87) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %c_24 = stablehlo.constant dense<3> : tensor<i32>
    %89 = stablehlo.convert %c_24 : (tensor<i32>) -> tensor<f32>
    %90 = stablehlo.broadcast_in_dim %89, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %91 = stablehlo.divide %88, %90 : tensor<2xf32>
    %92 = stablehlo.convert %91 : tensor<2xf32>
    %93 = stablehlo.reshape %92 : (tensor<2xf32>) -> tensor<2x1xf32>
    %cst_25 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %94 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<2x1xf32>
    %95 = stablehlo.add %93, %94 : tensor<2x1xf32>
    %96 = stablehlo.rsqrt %95 : tensor<2x1xf32>
    %97 = stablehlo.reshape %96 : (tensor<2x1xf32>) -> tensor<2xf32>
    %98 = stablehlo.broadcast_in_dim %97, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
    %99 = stablehlo.reshape %arg3 : (tensor<3xf32>) -> tensor<1x3xf32>
    %100 = stablehlo.reshape %99 : (tensor<1x3xf32>) -> tensor<3xf32>
    %101 = stablehlo.broadcast_in_dim %100, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %102 = stablehlo.multiply %98, %101 : tensor<2x3xf32>
    %103 = stablehlo.multiply %73, %102 : tensor<2x3xf32>
    %104 = stablehlo.negate %81 : tensor<2x1xf32>
    %105 = stablehlo.reshape %104 : (tensor<2x1xf32>) -> tensor<2xf32>
    %106 = stablehlo.broadcast_in_dim %105, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
    %107 = stablehlo.multiply %106, %102 : tensor<2x3xf32>
    %108 = stablehlo.reshape %arg4 : (tensor<3xf32>) -> tensor<1x3xf32>
    %109 = stablehlo.reshape %108 : (tensor<1x3xf32>) -> tensor<3xf32>
    %110 = stablehlo.broadcast_in_dim %109, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %111 = stablehlo.add %107, %110 : tensor<2x3xf32>
    %112 = stablehlo.add %103, %111 : tensor<2x3xf32>
    %cst_26 = stablehlo.constant dense<[[0.841470957, 0.909297406, 1.411200e-01], [-0.756802499, -0.958924293, -0.279415488]]> : tensor<2x3xf32>
    %113 = stablehlo.multiply %112, %cst_26 : tensor<2x3xf32>
    %114 = stablehlo.convert %113 : tensor<2x3xf32>
    %cst_27 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %115 = stablehlo.convert %cst_27 : tensor<f32>
    %116 = stablehlo.reduce(%114 init: %115) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
    %117 = stablehlo.convert %116 : tensor<f32>
    %118 = stablehlo.reshape %117 : (tensor<f32>) -> tensor<f32>
    return %118 : tensor<f32>
  }
}
