// RUN: pullback-opt %s --linearize='wrt=0' | filecheck %s

// CHECK-LABEL: func.func {{.*}}@main
// CHECK: return
// CHECK: func.func {{.*}}@main.linear

func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32>
  %1 = stablehlo.multiply %0, %y : tensor<f32>
  return %1 : tensor<f32>
}
