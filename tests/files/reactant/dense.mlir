// Written by hand in the form of Reactant: a dense layer of Lux, whose arrays are column-major in
// Julia, so that a matrix of 3 x 4 is tensor<4x3xf32> here; the weight is returned, and may be donated.
module @"reactant_Dense{ty..." attributes {mhlo.num_partitions = 1 : i64, mhlo.num_replicas = 1 : i64} {
  llvm.module_flags [#llvm.mlir.module_flag<warning, "Debug Info Version", 3 : i32>]
  func.func private @"tanh_broadcast_scalar"(%x: tensor<f32> {enzymexla.memory_effects = []}) -> tensor<f32> {
    %0 = stablehlo.tanh %x : tensor<f32>
    stablehlo.return %0 : tensor<f32>
  }
  func.func @main(%x: tensor<5x4xf32> {enzymexla.memory_effects = []}, %weight: tensor<4x3xf32> {tf.aliasing_output = 1 : i32}, %bias: tensor<3xf32>) -> (tensor<f32>, tensor<4x3xf32>) attributes {enzymexla.memory_effects = []} {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.transpose %weight, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
    %1 = stablehlo.transpose %x, dims = [1, 0] : (tensor<5x4xf32>) -> tensor<4x5xf32>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
    %3 = stablehlo.broadcast_in_dim %bias, dims = [0] : (tensor<3xf32>) -> tensor<3x5xf32>
    %4 = stablehlo.add %2, %3 {enzymexla.bounds = [[0, 9]]} : tensor<3x5xf32>
    %5 = stablehlo.tanh %4 : tensor<3x5xf32>
    %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<3x5xf32>, tensor<f32>) -> tensor<f32>
    %7 = func.call @tanh_broadcast_scalar(%6) : (tensor<f32>) -> tensor<f32>
    %8 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
    return %7, %8 : tensor<f32>, tensor<4x3xf32>
  }
}
