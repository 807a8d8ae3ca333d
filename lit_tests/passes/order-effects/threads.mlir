// One token goes from effect to effect: through functions, branches and loops. A condition, which
// cannot return one, is computed before the loop and at the end of its body.
// RUN: pullback-opt %s -p order-effects | filecheck %s

func.func private @print(%t: !stablehlo.token, %x: tensor<f32>) -> !stablehlo.token attributes {pullback.ordered} {
  %0 = stablehlo.custom_call @print(%t, %x) {has_side_effect = true} : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  return %0 : !stablehlo.token
}

// CHECK-LABEL: func.func private @step
// CHECK-SAME: (%[[X:.*]]: tensor<f32>, %[[T:.*]]: !stablehlo.token) -> (tensor<f32>, !stablehlo.token)
// CHECK: %[[T1:.*]] = call @print(%[[T]], %[[X]])
// CHECK: return %{{.*}}, %[[T1]]
func.func private @step(%x: tensor<f32>) -> tensor<f32> {
  %t = stablehlo.create_token : !stablehlo.token
  %0 = call @print(%t, %x) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  %1 = stablehlo.sine %x : tensor<f32>
  return %1 : tensor<f32>
}

// CHECK-LABEL: func.func @straight
// CHECK-SAME: (%[[X:.*]]: tensor<f32>) -> tensor<f32>
// CHECK: %[[T0:.*]] = stablehlo.create_token
// CHECK: %[[T1:.*]] = call @print(%[[T0]], %[[X]])
// CHECK: %[[YT:.*]]:2 = call @step(%[[X]], %[[T1]])
// CHECK: %[[T2:.*]] = call @print(%[[YT]]#1, %[[YT]]#0)
func.func @straight(%x: tensor<f32>) -> tensor<f32> {
  %t = stablehlo.create_token : !stablehlo.token
  %0 = call @print(%t, %x) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  %1 = call @step(%x) : (tensor<f32>) -> tensor<f32>
  %2 = call @print(%t, %1) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  return %1 : tensor<f32>
}

// CHECK-LABEL: func.func @branches
// CHECK: %[[T0:.*]] = stablehlo.create_token
// CHECK: %[[YT:.*]]:2 = "stablehlo.if"
// CHECK: %[[ZT:.*]]:2 = func.call @step(%{{.*}}, %[[T0]])
// CHECK: stablehlo.return %[[ZT]]#0, %[[ZT]]#1
// CHECK: stablehlo.return %{{.*}}, %[[T0]]
// CHECK: call @print(%[[YT]]#1, %[[YT]]#0)
func.func @branches(%p: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = func.call @step(%x) : (tensor<f32>) -> tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }, {
    stablehlo.return %x : tensor<f32>
  }) : (tensor<i1>) -> tensor<f32>
  %t = stablehlo.create_token : !stablehlo.token
  %2 = call @print(%t, %0) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @loop
// CHECK-SAME: (%[[X:.*]]: tensor<f32>, %[[END:.*]]: tensor<f32>)
// CHECK: %[[T0:.*]] = stablehlo.create_token
// CHECK: %[[T1:.*]] = call @print(%[[T0]], %[[X]])
// CHECK: %[[P:.*]] = stablehlo.compare LT, %[[X]], %[[END]]
// CHECK: stablehlo.while(%[[C:.*]] = %[[X]], %[[Q:.*]] = %[[P]], %[[T:.*]] = %[[T1]])
// CHECK: stablehlo.return %[[Q]]
// CHECK: } do {
// CHECK: %[[YT:.*]]:2 = func.call @step(%[[C]], %[[T]])
// CHECK: %[[T2:.*]] = func.call @print(%[[YT]]#1, %[[YT]]#0)
// CHECK: %[[R:.*]] = stablehlo.compare LT, %[[YT]]#0, %[[END]]
// CHECK: stablehlo.return %[[YT]]#0, %[[R]], %[[T2]]
func.func @loop(%x: tensor<f32>, %end: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.while(%c = %x) : tensor<f32>
    cond {
      %t = stablehlo.create_token : !stablehlo.token
      %1 = func.call @print(%t, %c) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
      %2 = stablehlo.compare LT, %c, %end : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %1 = func.call @step(%c) : (tensor<f32>) -> tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }
  return %0 : tensor<f32>
}
