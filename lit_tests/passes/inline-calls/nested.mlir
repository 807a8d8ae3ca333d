// Callees are inlined first, results and arguments are rewired, nested regions are entered.
// RUN: pullback-opt %s --inline-calls | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]] = stablehlo.negate %arg0
// CHECK: %[[B:.*]] = stablehlo.add %[[A]], %arg1
// CHECK: stablehlo.while(%[[I:.*]] = %[[B]])
// CHECK: stablehlo.negate %[[I]]
// CHECK: stablehlo.return
// CHECK-NOT: call @
func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0:2 = call @outer(%x, %y) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
  %1 = stablehlo.while(%i = %0#1) : tensor<f32> cond {
    %more = stablehlo.compare LT, %i, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = func.call @inner(%i) : (tensor<f32>) -> tensor<f32>
    stablehlo.return %next : tensor<f32>
  }
  return %1 : tensor<f32>
}
func.func private @outer(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = call @inner(%x) : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.add %0, %y : tensor<f32>
  return %x, %1 : tensor<f32>, tensor<f32>
}
func.func private @inner(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  return %0 : tensor<f32>
}
