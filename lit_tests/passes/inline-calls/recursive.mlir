// A recursive function stays a call, and what calls it is inlined into a loop.
// RUN: pullback-opt %s --inline-calls="max-ops=0 in-loops=true" | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.while
// CHECK: } do {
// CHECK-NEXT: stablehlo.tanh
// CHECK-NEXT: func.call @even
// CHECK-NEXT: stablehlo.return
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.while(%i = %x) : tensor<f32> cond {
    %more = stablehlo.compare LT, %i, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = func.call @wrapper(%i) : (tensor<f32>) -> tensor<f32>
    stablehlo.return %next : tensor<f32>
  }
  return %0 : tensor<f32>
}
func.func private @odd(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.abs %x : tensor<f32>
  %1 = call @even(%0) : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
func.func private @even(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  %1 = call @odd(%0) : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
func.func private @wrapper(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.tanh %x : tensor<f32>
  %1 = call @even(%0) : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}
