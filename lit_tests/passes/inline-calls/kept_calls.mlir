// What stays a call: public, checkpointed and recursive functions, declarations, `no_inline`.
// RUN: pullback-opt %s --inline-calls | filecheck %s
// RUN: pullback-opt %s --inline-calls="public=true" | filecheck %s --check-prefix=PUBLIC
// RUN: pullback-opt %s --inline-calls=checkpoint | filecheck %s --check-prefix=CHECKPOINT

// CHECK-LABEL: func.func @main
// CHECK: call @public_function
// CHECK: call @checkpointed
// CHECK: call @recursive
// CHECK: call @declared
// CHECK: call @kept_apart
// PUBLIC-LABEL: func.func @main
// PUBLIC: stablehlo.abs
// PUBLIC: call @checkpointed
// CHECKPOINT-LABEL: func.func @main
// CHECKPOINT: call @public_function
// CHECKPOINT: stablehlo.negate
// CHECKPOINT: call @recursive
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @public_function(%x) : (tensor<f32>) -> tensor<f32>
  %1 = call @checkpointed(%0) : (tensor<f32>) -> tensor<f32>
  %2 = call @recursive(%1) : (tensor<f32>) -> tensor<f32>
  %3 = call @declared(%2) : (tensor<f32>) -> tensor<f32>
  %4 = call @kept_apart(%3) : (tensor<f32>) -> tensor<f32>
  return %4 : tensor<f32>
}
func.func @public_function(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.abs %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @checkpointed(%x: tensor<f32>) -> tensor<f32> attributes {pullback.checkpoint} {
  %0 = stablehlo.negate %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @recursive(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @mutual(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @mutual(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @recursive(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @declared(%x: tensor<f32>) -> tensor<f32>
func.func private @kept_apart(%x: tensor<f32>) -> tensor<f32> attributes {no_inline} {
  return %x : tensor<f32>
}
