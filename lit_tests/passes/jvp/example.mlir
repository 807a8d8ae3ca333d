// RUN: pullback-opt %s --jvp='wrt=0' | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.*]]: tensor<f32>, %[[Y:.*]]: tensor<f32>, %[[DX:.*]]: tensor<f32>)
// CHECK: %[[C:.*]] = stablehlo.cosine %[[X]]
// CHECK: %[[D:.*]] = stablehlo.multiply %[[DX]], %[[C]]
// CHECK: %[[DZ:.*]] = stablehlo.multiply %[[D]], %[[Y]]
// CHECK: return %{{.*}}, %[[DZ]]

func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  %1 = stablehlo.multiply %0, %y : tensor<f32>
  return %1 : tensor<f32>
}
