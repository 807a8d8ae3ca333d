// A call with rules becomes a call of functions for a batch, which has rules for a batch.
// The cotangent of an operand that all items share is the sum of what each has for it.
// RUN: pullback-opt %s --vmap="size=8 in-axes=0,none" --verify-custom-derivatives --symbol-dce | filecheck %s
// RUN: pullback-opt %s --vmap="size=8 in-axes=0,none" --vjp="unit-cotangent=false" --symbol-dce | filecheck %s --check-prefix=VJP

// CHECK-LABEL: func.func public @main
// CHECK: stablehlo.composite "pullback.custom_vjp_call" %arg0, %arg1 {composite_attributes = {bwd = @f.bwd.batched, fwd = @f.fwd.batched}, decomposition = @f.batched}
// CHECK-SAME: (tensor<8x3xf32>, tensor<f32>) -> tensor<8x3xf32>
// CHECK-LABEL: func.func private @f.fwd.batched(%arg0: tensor<8x3xf32>, %arg1: tensor<f32>) -> (tensor<8x3xf32>, tensor<8x3xf32>, tensor<f32>)
// CHECK-LABEL: func.func private @f.bwd.batched
// CHECK-SAME: (%arg0: tensor<8x3xf32>, %arg1: tensor<f32>, %arg2: tensor<8x3xf32>) -> (tensor<8x3xf32>, tensor<f32>)
// CHECK: %[[EACH:.*]] = stablehlo.reduce({{.*}}) applies stablehlo.add across dimensions = [1]
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[EACH]] init: {{.*}}) applies stablehlo.add across dimensions = [0]
// CHECK: return {{.*}}, %[[SUM]] : tensor<8x3xf32>, tensor<f32>
// VJP-LABEL: func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<f32>, %arg2: tensor<8x3xf32>) -> (tensor<8x3xf32>, tensor<8x3xf32>, tensor<f32>)
// VJP-NOT: composite
// VJP: stablehlo.constant dense<7.0
func.func public @main(%x: tensor<3xf32>, %w: tensor<f32>) -> tensor<3xf32> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x, %w {composite_attributes = {bwd = @f.bwd, fwd = @f.fwd}, decomposition = @f} : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func private @f(%x: tensor<3xf32>, %w: tensor<f32>) -> tensor<3xf32> {
  %0 = stablehlo.broadcast_in_dim %w, dims = [] : (tensor<f32>) -> tensor<3xf32>
  %1 = stablehlo.multiply %x, %0 : tensor<3xf32>
  return %1 : tensor<3xf32>
}
func.func private @f.fwd(%x: tensor<3xf32>, %w: tensor<f32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<f32>) {
  %0 = func.call @f(%x, %w) : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
  return %0, %x, %w : tensor<3xf32>, tensor<3xf32>, tensor<f32>
}
func.func private @f.bwd(%x: tensor<3xf32>, %w: tensor<f32>, %ct: tensor<3xf32>) -> (tensor<3xf32>, tensor<f32>) {
  %seven = stablehlo.constant dense<7.0> : tensor<3xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.multiply %ct, %seven : tensor<3xf32>
  %1 = stablehlo.multiply %ct, %x : tensor<3xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  return %0, %2 : tensor<3xf32>, tensor<f32>
}
