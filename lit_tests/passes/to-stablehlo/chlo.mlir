// Only func and stablehlo ops are left: derivative ops and chlo ops are gone.
// RUN: pullback-opt %s --pass-pipeline='builtin.module(to-stablehlo)' | filecheck %s

// CHECK-NOT: chlo.
// CHECK-NOT: composite
// CHECK-LABEL: func.func @main
// CHECK: %[[Y:.*]] = call @f(%arg0)
// CHECK: %[[Z:.*]] = stablehlo.multiply %[[Y]], %[[Y]]
// CHECK: return %[[Z]]
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  %1 = chlo.square %0 : tensor<f32> -> tensor<f32>
  return %1 : tensor<f32>
}
// CHECK-LABEL: func.func private @f
// CHECK-NOT: chlo.
// CHECK: stablehlo.
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  %0 = chlo.sinh %x : tensor<f32> -> tensor<f32>
  return %0 : tensor<f32>
}
// CHECK-NOT: @f.jvp
func.func private @f.jvp(%x: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  return %x, %dx : tensor<f32>, tensor<f32>
}
