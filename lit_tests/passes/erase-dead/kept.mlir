// What stays: anything with an effect, however deep, and rule functions that an op refers to.
// RUN: pullback-opt %s --erase-dead | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: call @prints
// CHECK: stablehlo.composite "pullback.custom_jvp_call"
// CHECK-SAME: decomposition = @prints
// CHECK: stablehlo.composite "pullback.custom_jvp_call"
// CHECK-SAME: decomposition = @f
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @prints(%x) : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {rule = "prints"}, decomposition = @prints
  } : (tensor<f32>) -> tensor<f32>
  %2 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}
// CHECK: func.func private @prints
// CHECK: stablehlo.custom_call @print
func.func private @prints(%x: tensor<f32>) -> tensor<f32> {
  stablehlo.custom_call @print(%x) {has_side_effect = true} : (tensor<f32>) -> ()
  return %x : tensor<f32>
}
// CHECK: func.func private @f(
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
// CHECK: func.func private @f.jvp(
func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  return %x, %dx : tensor<f32>, tensor<f32>
}
