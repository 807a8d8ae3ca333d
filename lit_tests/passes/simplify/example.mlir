// RUN: pullback-opt %s --simplify | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NOT: stablehlo.compare NE
// CHECK: %[[E:.*]] = stablehlo.exponential
// CHECK: stablehlo.log_plus_one %[[E]]
// CHECK-NOT: stablehlo.select
// CHECK-NOT: stablehlo.exponential
// CHECK: %[[ABOVE:.*]] = stablehlo.compare GE
// CHECK: %[[SHARE:.*]] = stablehlo.select %[[ABOVE]], %[[ONE:.*]], %[[E]]
// CHECK: %[[TOTAL:.*]] = stablehlo.add %[[E]], %[[ONE]]
// CHECK: stablehlo.divide %[[SHARE]], %[[TOTAL]]

func.func @main(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %infinity = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %y = call @logaddexp(%x, %zero) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %0 = stablehlo.compare EQ, %x, %infinity : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %1 = stablehlo.select %0, %zero, %x : tensor<i1>, tensor<f32>
  %2 = stablehlo.compare EQ, %y, %infinity : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %3 = stablehlo.select %2, %zero, %y : tensor<i1>, tensor<f32>
  %4 = stablehlo.subtract %1, %3 : tensor<f32>
  %5 = stablehlo.exponential %4 : tensor<f32>
  return %y, %5 : tensor<f32>, tensor<f32>
}

func.func private @logaddexp(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.maximum %x, %y : tensor<f32>
  %1 = stablehlo.subtract %x, %y : tensor<f32>
  %2 = stablehlo.compare NE, %1, %1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %3 = stablehlo.add %x, %y : tensor<f32>
  %4 = stablehlo.abs %1 : tensor<f32>
  %5 = stablehlo.negate %4 : tensor<f32>
  %6 = stablehlo.exponential %5 : tensor<f32>
  %7 = stablehlo.log_plus_one %6 : tensor<f32>
  %8 = stablehlo.add %0, %7 : tensor<f32>
  %9 = stablehlo.select %2, %3, %8 : tensor<i1>, tensor<f32>
  return %9 : tensor<f32>
}
