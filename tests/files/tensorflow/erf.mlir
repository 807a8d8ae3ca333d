module @a_inference__lambda__29__.2 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @Sum_reduction.1(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<4xf32>) -> tensor<f32> {
    %0 = stablehlo.reshape %arg0 : (tensor<4xf32>) -> tensor<4xf32>
    %1 = mhlo.erf %0 : tensor<4xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<4xf32>
    %cst = stablehlo.constant dense<[0.841470957, 0.909297406, 1.411200e-01, -0.756802499]> : tensor<4xf32>
    %3 = stablehlo.multiply %2, %cst : tensor<4xf32>
    %4 = stablehlo.convert %3 : tensor<4xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.convert %cst_0 : tensor<f32>
    %6 = stablehlo.reduce(%4 init: %5) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %7 = stablehlo.convert %6 : tensor<f32>
    %8 = stablehlo.reshape %7 : (tensor<f32>) -> tensor<f32>
    return %8 : tensor<f32>
  }
}
