// RUN: pullback-opt %s --vmap='size=8 in-axes=0,none' | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.*]]: tensor<8xf32>, %[[Y:.*]]: tensor<f32>) -> tensor<8xf32>
// CHECK: stablehlo.sine %[[X]]
// CHECK: stablehlo.multiply

func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  %1 = stablehlo.multiply %0, %y : tensor<f32>
  return %1 : tensor<f32>
}
