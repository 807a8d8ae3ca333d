// A composite is its decomposition, which loses the name: a batch is not what is known by it. One with
// rules of its own needs one for batches.
// RUN: pullback-opt %s --vmap="size=8" | filecheck %s
// RUN: pullback-opt %s --load-rules %S/Inputs/acme_batches.py --vmap="size=8" | filecheck %s --check-prefix=RULE
// RUN: pullback-opt %s --load-rules %S/../../rules/composite/Inputs/acme_rules.py --load-rules %S/Inputs/acme_batches.py --vmap="size=8" --vjp | filecheck %s --check-prefix=VJP
// RUN: not pullback-opt %s --load-rules %S/../../rules/composite/Inputs/acme_rules.py --vmap="entry=modulus size=8" 2>&1 | filecheck %s --check-prefix=NONE

// CHECK-LABEL: func.func @main(%arg0: tensor<8x4xf64>) -> tensor<8x4xf64>
// CHECK-NOT: acme
// CHECK: %[[SINE:.*]] = call @sine.batched(%arg0) : (tensor<8x4xf64>) -> tensor<8x4xf64>
// CHECK: call @flip.batched(%[[SINE]])
// CHECK-LABEL: func.func private @flip.batched
// CHECK: stablehlo.reverse %arg0, dims = [1] : tensor<8x4xf64>
// RULE: %[[Y:.*]] = call @sine.batched(%arg0)
// RULE: stablehlo.reverse %[[Y]], dims = [1] : tensor<8x4xf64>
// VJP: stablehlo.cosine %arg0 : tensor<8x4xf64>
// NONE: no batching rule for the composite `acme.modulus`, which has a derivative rule of its own
// NONE: do:    register one: docs/extending.md#batches
func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.composite "acme.sine" %x {decomposition = @sine} : (tensor<4xf64>) -> tensor<4xf64>
  %1 = stablehlo.composite "acme.flip" %0 {decomposition = @flip} : (tensor<4xf64>) -> tensor<4xf64>
  return %1 : tensor<4xf64>
}
func.func @modulus(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.composite "acme.modulus" %x {decomposition = @sine} : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}
func.func private @sine(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.sine %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}
func.func private @flip(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.reverse %x, dims = [0] : tensor<4xf64>
  return %0 : tensor<4xf64>
}
