// Unused results of a loop and of a case go; carries that others need stay.
// RUN: pullback-opt %s --erase-dead | filecheck %s

// The second carry only feeds itself; the third has no use outside but feeds the first.
// CHECK-LABEL: func.func @loop
// CHECK: %[[R:.*]]:2 = stablehlo.while(%[[I:.*]] = %arg0, %[[K:.*]] = %arg2)
// CHECK: do {
// CHECK-NEXT: %[[N:.*]] = stablehlo.add %[[I]], %[[K]]
// CHECK-NEXT: stablehlo.return %[[N]], %[[K]]
// CHECK: return %[[R]]#0
func.func @loop(%i: tensor<f32>, %j: tensor<f32>, %k: tensor<f32>) -> tensor<f32> {
  %0:3 = stablehlo.while(%a = %i, %b = %j, %c = %k)
      : tensor<f32>, tensor<f32>, tensor<f32> cond {
    %more = stablehlo.compare LT, %a, %i : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.add %a, %c : tensor<f32>
    %2 = stablehlo.negate %b : tensor<f32>
    %3 = stablehlo.multiply %2, %1 : tensor<f32>
    stablehlo.return %1, %3, %c : tensor<f32>, tensor<f32>, tensor<f32>
  }
  return %0#0 : tensor<f32>
}

// A carry that the condition reads stays.
// CHECK-LABEL: func.func @read_by_condition
// CHECK: stablehlo.while({{.*}}, {{.*}})
func.func @read_by_condition(%i: tensor<f32>, %j: tensor<f32>) -> tensor<f32> {
  %0:2 = stablehlo.while(%a = %i, %b = %j) : tensor<f32>, tensor<f32> cond {
    %more = stablehlo.compare LT, %b, %i : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.negate %a : tensor<f32>
    %2 = stablehlo.negate %b : tensor<f32>
    stablehlo.return %1, %2 : tensor<f32>, tensor<f32>
  }
  return %0#0 : tensor<f32>
}

// CHECK-LABEL: func.func @branches
// CHECK: %[[C:.*]] = "stablehlo.case"(%arg0) ({
// CHECK-NEXT: stablehlo.return %arg1 : tensor<f32>
// CHECK: %[[A:.*]] = stablehlo.abs %arg1
// CHECK-NEXT: stablehlo.return %[[A]] : tensor<f32>
// CHECK: return %[[C]]
func.func @branches(%n: tensor<i32>, %x: tensor<f32>) -> tensor<f32> {
  %0:2 = "stablehlo.case"(%n) ({
    %1 = stablehlo.negate %x : tensor<f32>
    stablehlo.return %1, %x : tensor<f32>, tensor<f32>
  }, {
    %2 = stablehlo.abs %x : tensor<f32>
    stablehlo.return %x, %2 : tensor<f32>, tensor<f32>
  }) : (tensor<i32>) -> (tensor<f32>, tensor<f32>)
  return %0#1 : tensor<f32>
}
