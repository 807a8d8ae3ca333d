// Where the batch axis of each argument and result is; what all items share has none.
// RUN: pullback-opt %s --vmap="size=8 in-axes=1,none out-axes=1,none" | filecheck %s
// RUN: pullback-opt %s --vmap="size=8 in-axes=-1,none out-axes=-1,0" | filecheck %s --check-prefix=LAST
// RUN: not pullback-opt %s --vmap="size=8 in-axes=3,0" 2>&1 | filecheck %s --check-prefix=RANGE
// RUN: not pullback-opt %s --vmap="size=8 in-axes=0,0,0" 2>&1 | filecheck %s --check-prefix=COUNT
// RUN: not pullback-opt %s --vmap="size=8 out-axes=none" 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not pullback-opt %s --vmap 2>&1 | filecheck %s --check-prefix=SIZE
// RUN: not pullback-opt %s --vmap=size=-2 2>&1 | filecheck %s --check-prefix=FEWER

// CHECK-LABEL: func.func public @main(%arg0: tensor<2x8x3xf32>, %arg1: tensor<3xf32>) -> (tensor<2x8x3xf32>, tensor<3xf32>)
// CHECK: %[[X:.*]] = stablehlo.transpose %arg0, dims = [1, 0, 2] : {{.*}} -> tensor<8x2x3xf32>
// CHECK: %[[W:.*]] = stablehlo.sine %arg1 : tensor<3xf32>
// CHECK: stablehlo.broadcast_in_dim %[[W]], dims = [2] : (tensor<3xf32>) -> tensor<8x2x3xf32>
// CHECK: %[[Y:.*]] = stablehlo.multiply
// CHECK: %[[OUT:.*]] = stablehlo.transpose %[[Y]], dims = [1, 0, 2] : {{.*}} -> tensor<2x8x3xf32>
// CHECK: return %[[OUT]], %[[W]]
// LAST-LABEL: func.func public @main(%arg0: tensor<2x3x8xf32>, %arg1: tensor<3xf32>) -> (tensor<2x3x8xf32>, tensor<8x3xf32>)
// RANGE: axis 3 for the argument of `@main` at position 0, of type tensor<2x3xf32>
// RANGE: with a batch axis it has 3 dimensions: give -3 to 2
// COUNT: 3 axes for the 2 arguments of `@main`
// NONE: result of `@main` at position 0 depends on the batch, and its axis is none
// SIZE: pass 'vmap' needs the option 'size'
// FEWER: error: a batch of -2 items
func.func public @main(%x: tensor<2x3xf32>, %w: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>) {
  %0 = stablehlo.sine %w : tensor<3xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
  %2 = stablehlo.multiply %x, %1 : tensor<2x3xf32>
  return %2, %0 : tensor<2x3xf32>, tensor<3xf32>
}
