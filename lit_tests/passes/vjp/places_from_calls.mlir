// A cotangent waits for the others of its value, and finds the place that a call has computed for it
// although the call has given way to one with residuals by then.
// RUN: pullback-opt %s -p "vjp" | filecheck %s

func.func private @f(%x: tensor<6xf64>, %i: tensor<i32>) -> (tensor<6xf64>, tensor<i32>) {
  %next = stablehlo.add %i, %i : tensor<i32>
  %y = stablehlo.sine %x : tensor<6xf64>
  return %y, %next : tensor<6xf64>, tensor<i32>
}

func.func @main(%x: tensor<6xf64>, %i: tensor<i32>) -> (tensor<3xf64>, tensor<6xf64>) {
  %a = stablehlo.cosine %x : tensor<6xf64>
  %b, %place = func.call @f(%x, %i) : (tensor<6xf64>, tensor<i32>) -> (tensor<6xf64>, tensor<i32>)
  %y = stablehlo.dynamic_slice %a, %place, sizes = [3] : (tensor<6xf64>, tensor<i32>) -> tensor<3xf64>
  return %y, %b : tensor<3xf64>, tensor<6xf64>
}

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[I:[a-z0-9]+]]: tensor<i32>, %[[CT:[a-z0-9]+]]: tensor<3xf64>, %{{.*}}: tensor<6xf64>)
// CHECK: %[[PLACE:.*]] = stablehlo.add %[[I]], %[[I]]
// CHECK: stablehlo.dynamic_update_slice %{{.*}}, %[[CT]], %[[PLACE]]
