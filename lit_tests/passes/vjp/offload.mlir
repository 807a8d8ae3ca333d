// RUN: pullback-opt %s --vjp="wrt=0" --inline-calls=checkpoint=true | filecheck %s
// RUN: pullback-opt %s --vjp="wrt=0 split=true" | filecheck %s --check-prefix=SPLIT
// A checkpoint saves a marked value of each iteration in the memory of the host: it is moved there
// before the loop stacks it, and back behind the barrier, where its slot is read.

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.while
// CHECK: %[[Y:.*]] = stablehlo.sine
// CHECK: %[[HOST:.*]] = stablehlo.custom_call @annotate_device_placement(%[[Y]])
// CHECK-SAME: _xla_buffer_placement = "pinned_host"
// CHECK: %[[PART:.*]] = stablehlo.reshape %[[HOST]]
// CHECK: stablehlo.dynamic_update_slice %{{.*}}, %[[PART]]
// CHECK: stablehlo.optimization_barrier
// CHECK: stablehlo.while
// CHECK: %[[SLOT:.*]] = stablehlo.reshape
// CHECK: stablehlo.custom_call @annotate_device_placement(%[[SLOT]])
// CHECK-SAME: _xla_buffer_placement = "device"
// CHECK-NOT: stablehlo.sine
// CHECK-NOT: pinned_host
// CHECK: return

// Between two functions, the result says where it is.
// SPLIT: func.func public @main
// SPLIT-SAME: tensor<5x4xf32> {mhlo.memory_kind = "pinned_host"}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {pullback.checkpoint} {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %n = stablehlo.constant dense<5> : tensor<i32>
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %u = stablehlo.sine %y : tensor<4xf32>
    %v = stablehlo.composite "checkpoint.saved" %u {composite_attributes = {memory = "pinned_host"}, decomposition = @saved} : (tensor<4xf32>) -> tensor<4xf32>
    %w = stablehlo.multiply %v, %v : tensor<4xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %w : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}

func.func private @saved(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
