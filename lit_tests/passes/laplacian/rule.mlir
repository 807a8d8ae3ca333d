// RUN: pullback-opt %s --laplacian --lower-custom-derivatives --inline-calls --canonicalize | filecheck %s

// The rule, which says t x² of a function that is x, is taken twice: Δy = 2 x.
// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.*]]: tensor<f32>)
// CHECK: %[[S:.*]] = stablehlo.reduce
// CHECK: %[[SX:.*]] = stablehlo.multiply %[[S]], %[[X]]
// CHECK: %[[L:.*]] = stablehlo.add %[[SX]], %[[SX]]
// CHECK: return %[[X]], %{{.*}}

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.jvp(%x: tensor<f32>, %t: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %xx = stablehlo.multiply %x, %x : tensor<f32>
  %u = stablehlo.multiply %t, %xx : tensor<f32>
  return %x, %u : tensor<f32>, tensor<f32>
}
