// RUN: pullback-opt %s --inline-calls | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[S:.*]] = stablehlo.multiply %arg0, %arg0
// CHECK-NEXT: return %[[S]]

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @square(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

func.func private @square(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.multiply %x, %x : tensor<f32>
  return %0 : tensor<f32>
}
