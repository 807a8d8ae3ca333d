// RUN: not pullback check --load-rules %S/Inputs/checked_rules.py %s | filecheck %s
// RUN: not pullback check %s | filecheck %s --check-prefix=NONE

// The rules that a process has for composites are compared with their decompositions.

// CHECK: ok   acme.sine: jvp, value, vjp, types, linearity, duality, batch
// CHECK: FAIL acme.negative vjp: the rule gives
// CHECK: rule: the rule registered for `acme.negative`: <lambda> at {{.*}}checked_rules.py:5
// CHECK: call: {{.*}}registered_rules.mlir:{{[0-9]+}}:8
// CHECK-NOT: quantize
// CHECK: checks of rules, 2 failed

// NONE: 0 checks of rules, 0 failed, 0 doubtful

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.composite "acme.sine" %x {decomposition = @sine} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.composite "acme.negative" %0 {decomposition = @negative} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = stablehlo.composite "acme.quantize" %1 {decomposition = @negative} : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
func.func private @sine(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @negative(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
