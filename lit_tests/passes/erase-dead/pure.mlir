// Unused derivative ops, pure calls, loops and branches go, and with them what only they used.
// RUN: pullback-opt %s --erase-dead | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NEXT: return %arg0
// CHECK-NOT: unused_function
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @unused_function(%x) : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.composite "pullback.custom_jvp_call" %0 {
    composite_attributes = {jvp = @unused_function.jvp}, decomposition = @unused_function
  } : (tensor<f32>) -> tensor<f32>
  %2 = stablehlo.while(%i = %1) : tensor<f32> cond {
    %more = stablehlo.compare LT, %i, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = func.call @unused_function(%i) : (tensor<f32>) -> tensor<f32>
    stablehlo.return %next : tensor<f32>
  }
  %3 = stablehlo.negate %2 : tensor<f32>
  return %x : tensor<f32>
}
func.func private @unused_function(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @unused_function.jvp(%x: tensor<f32>, %dx: tensor<f32>)
    -> (tensor<f32>, tensor<f32>) {
  return %x, %dx : tensor<f32>, tensor<f32>
}
