// A loop goes on as long as any item does; an item that is done keeps its carries.
// Where each item takes a branch of its own, all run, and each item chooses; in those that it does not
// take it has no derivative.
// RUN: pullback-opt %s --vmap="size=8 in-axes=0,0" | filecheck %s
// RUN: pullback-opt %s --vmap="size=8 in-axes=0,none" | filecheck %s --check-prefix=SHARED

// CHECK-LABEL: func.func public @main
// CHECK: stablehlo.while({{.*}}) : tensor<8xi32>, tensor<8xf32>, tensor<8xi32>
// CHECK: cond
// CHECK: %[[EACH:.*]] = stablehlo.compare LT, {{.*}} -> tensor<8xi1>
// CHECK: %[[ANY:.*]] = stablehlo.reduce(%[[EACH]] init: {{.*}}) applies stablehlo.or across dimensions = [0]
// CHECK: stablehlo.return %[[ANY]] : tensor<i1>
// CHECK: do
// CHECK: %[[GOES:.*]] = stablehlo.compare LT
// CHECK: stablehlo.select %[[GOES]]
// CHECK: stablehlo.select %[[GOES]]
// CHECK-NOT: stablehlo.select
// CHECK: stablehlo.return
// CHECK-NOT: stablehlo.case
// CHECK: %[[FIRST:.*]] = stablehlo.compare EQ
// CHECK: %[[OTHER:.*]] = stablehlo.not %[[FIRST]]
// CHECK: %[[X:.*]] = stablehlo.composite "pullback.custom_jvp_call" %[[FIRST]], {{.*}}decomposition = @taken
// CHECK: %[[SINE:.*]] = stablehlo.sine %[[X]]
// CHECK: %[[Y:.*]] = stablehlo.composite "pullback.custom_jvp_call" %[[OTHER]], {{.*}}decomposition = @taken
// CHECK: %[[COSINE:.*]] = stablehlo.cosine %[[Y]]
// CHECK: stablehlo.select %[[FIRST]], %[[SINE]], %[[COSINE]]
// CHECK-LABEL: func.func private @taken.jvp
// CHECK: %[[T:.*]] = stablehlo.select %arg0, %arg2
// CHECK: return %arg1, %[[T]]
// SHARED-LABEL: func.func public @main
// SHARED: stablehlo.while({{.*}}) : tensor<i32>, tensor<8xf32>, tensor<i32>
// SHARED-NOT: stablehlo.select
// SHARED: "stablehlo.case"
// SHARED-NOT: stablehlo.select
func.func public @main(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:3 = stablehlo.while(%i = %zero, %c = %x, %end = %n) : tensor<i32>, tensor<f32>, tensor<i32>
  cond {
    %1 = stablehlo.compare LT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = stablehlo.tanh %c : tensor<f32>
    stablehlo.return %1, %2, %end : tensor<i32>, tensor<f32>, tensor<i32>
  }
  %3 = "stablehlo.case"(%n) ({
    %4 = stablehlo.sine %0#1 : tensor<f32>
    stablehlo.return %4 : tensor<f32>
  }, {
    %4 = stablehlo.cosine %0#1 : tensor<f32>
    stablehlo.return %4 : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>
  return %3 : tensor<f32>
}
