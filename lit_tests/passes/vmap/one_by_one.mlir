// An op without a batching rule runs for one item after the other; tokens have no batch.
// RUN: pullback-opt %s --vmap="size=8" --split-input-file | filecheck %s
// RUN: not pullback-opt %s --vmap="entry=token size=8" 2>&1 | filecheck %s --check-prefix=TOKEN
// RUN: not pullback-opt %s --vmap="entry=argument size=8" 2>&1 | filecheck %s --check-prefix=ARGUMENT
// RUN: not pullback-opt %s --vmap="entry=result size=8" 2>&1 | filecheck %s --check-prefix=RESULT
// RUN: pullback-opt %s --vmap="entry=rows size=8" | filecheck %s --check-prefix=ROWS
// RUN: not pullback-opt %s --vmap="entry=bounded size=8" 2>&1 | filecheck %s --check-prefix=BOUNDED

// CHECK-LABEL: func.func public @main(%arg0: tensor<8x3xf32>) -> tensor<8x3xf32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while({{.*}}) : tensor<i32>, tensor<8x3xf32>
// CHECK: %[[ROW:.*]] = stablehlo.dynamic_slice %arg0, {{.*}}, sizes = [1, 3]
// CHECK: %[[ITEM:.*]] = stablehlo.reshape %[[ROW]]
// CHECK: stablehlo.custom_call @mine(%[[ITEM]])
// CHECK: stablehlo.dynamic_update_slice
// CHECK: return %[[LOOP]]#1 : tensor<8x3xf32>
// TOKEN: one_by_one.mlir:29:10: error: no batching rule for `stablehlo.custom_call` on a value of type !stablehlo.token
// ARGUMENT: error: no batching rule for `func.func` on a value of type !stablehlo.token
// RESULT: error: no batching rule for `func.return` on a value of type !stablehlo.token
// BOUNDED: error: no batching rule for `func.func` on a value of dynamic shape, tensor<?xf32, #stablehlo.bounds<4>>
// ROWS-LABEL: func.func public @rows
// ROWS: chlo.broadcast_add {{.*}} {broadcast_dimensions = array<i64: 0>} : (tensor<3xf32>, tensor<3x3xf32>)
// TOKEN: do:    map the function before it is traced
func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @mine(%x) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func public @token(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.create_token : !stablehlo.token
  %1:2 = stablehlo.custom_call @mine(%x, %0) {has_side_effect = true} : (tensor<3xf32>, !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
  return %1#0 : tensor<3xf32>
}
func.func public @rows(%x: tensor<3xf32>, %y: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = chlo.broadcast_add %x, %y {broadcast_dimensions = array<i64: 0>} : (tensor<3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}
func.func public @argument(%t: !stablehlo.token) -> !stablehlo.token {
  return %t : !stablehlo.token
}
func.func public @result(%x: tensor<3xf32>) -> (tensor<3xf32>, !stablehlo.token) {
  %0 = stablehlo.create_token : !stablehlo.token
  return %x, %0 : tensor<3xf32>, !stablehlo.token
}
func.func public @bounded(%x: tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<?xf32, #stablehlo.bounds<4>> {
  %0 = stablehlo.tanh %x : tensor<?xf32, #stablehlo.bounds<4>>
  return %0 : tensor<?xf32, #stablehlo.bounds<4>>
}
