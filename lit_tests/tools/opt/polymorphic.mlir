// RUN: pullback-opt %s --stablehlo-refine-arguments='types=tensor<8x4xf32>,tensor<4xf32>' --stablehlo-refine-shapes --stablehlo-check-shape-assertions --stablehlo-canonicalize-dynamism | filecheck %s --check-prefix=STATIC
// RUN: pullback-opt %s --stablehlo-refine-arguments='types=tensor<8x4xf32>,tensor<4xf32>' --stablehlo-refine-shapes --stablehlo-check-shape-assertions --stablehlo-canonicalize-dynamism | pullback derive - --vjp | filecheck %s --check-prefix=VJP
// RUN: not pullback-opt %s --stablehlo-refine-arguments='types=tensor<0x4xf32>,tensor<4xf32>' --stablehlo-refine-shapes --stablehlo-check-shape-assertions 2>&1 | filecheck %s --check-prefix=REFUSED
// RUN: not pullback derive %s --vjp 2>&1 | filecheck %s --check-prefix=DYNAMIC

// What jax.export writes for symbolic dimensions: static once its arguments are.

// DYNAMIC: the dynamic shape of tensor<?x4xf32> is not supported
// DYNAMIC: stablehlo-refine-arguments

// REFUSED: error: no rows

// STATIC: func.func @main(%arg0: tensor<8x4xf32>, %arg1: tensor<4xf32>) -> tensor<8x4xf32>
// STATIC-NOT: custom_call
// STATIC: stablehlo.multiply %arg0, %{{.*}} : tensor<8x4xf32>

// VJP: func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<4xf32>, %arg2: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>)
func.func @main(%x: tensor<?x4xf32>, %w: tensor<4xf32>) -> tensor<?x4xf32> {
  %rows = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %some = stablehlo.compare GE, %rows, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%some) {api_version = 2 : i32, error_message = "no rows", has_side_effect = true} : (tensor<i1>) -> ()
  %first = stablehlo.reshape %rows : (tensor<i32>) -> tensor<1xi32>
  %second = stablehlo.constant dense<4> : tensor<1xi32>
  %shape = stablehlo.concatenate %first, %second, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %all = stablehlo.dynamic_broadcast_in_dim %w, %shape, dims = [1] : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  %0 = stablehlo.multiply %x, %all : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
