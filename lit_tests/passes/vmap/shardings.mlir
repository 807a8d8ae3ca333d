// Where values are that an op or a function is sharded for has no batch here; a device for all of a
// value is fine, and so is a constraint.
// RUN: pullback-opt %s --vmap="entry=on_one size=8" | filecheck %s
// RUN: not pullback-opt %s --vmap="entry=argument size=8" 2>&1 | filecheck %s --check-prefix=ARGUMENT
// RUN: not pullback-opt %s --vmap="entry=calls size=8" 2>&1 | filecheck %s --check-prefix=CALLED
// RUN: pullback-opt %s --vmap="entry=constraint size=8" | filecheck %s --check-prefix=CONSTRAINT
// RUN: not pullback-opt %s --vmap="entry=older size=8" 2>&1 | filecheck %s --check-prefix=OLDER

// CHECK: stablehlo.custom_call @mine({{.*}}) {mhlo.sharding = "{maximal device=0}"} : (tensor<4xf32>) -> tensor<4xf32>
// ARGUMENT: no batching rule for `func.func` that is sharded over devices
// CALLED: no batching rule for `func.func` that is sharded over devices
// CONSTRAINT: sdy.sharding_constraint %{{.*}} <@mesh, [{?}, {"a"}], replicated={"b"}> : tensor<8x4xf32>
// OLDER: no batching rule for `stablehlo.sine` that is sharded over devices
sdy.mesh @mesh = <["a"=2, "b"=2]>
func.func public @on_one(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @mine(%x) {mhlo.sharding = "{maximal device=0}"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func public @argument(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func public @calls(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @called(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @called(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func public @constraint(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = sdy.sharding_constraint %x <@mesh, [{"a"}], replicated={"b"}> : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func public @older(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %x {mhlo.sharding = "{devices=[2]<=[2]}"} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
