// RUN: pullback-opt %s --load-rules %S/Inputs/acme_rules.py --jvp | filecheck %s --check-prefix=JVP
// RUN: pullback derive --load-rules %S/Inputs/acme_rules.py --vjp %s | filecheck %s --check-prefix=VJP
// RUN: pullback-opt %s --jvp | filecheck %s --check-prefix=WITHOUT
// RUN: not pullback-opt %s --load-rules %S/Inputs/nosuch.py --jvp 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not pullback derive --load-rules %S/Inputs/wrong_rules.py --vjp %s 2>&1 | filecheck %s --check-prefix=WRONG
// RUN: not pullback derive --load-rules %S/Inputs/raising_rules.py --vjp %s 2>&1 | filecheck %s --check-prefix=RAISES
// RUN: not pullback-opt --load-rules %S/Inputs/second_rules.py --vjp %s 2>&1 | filecheck %s --check-prefix=SECOND

// RAISES: UsageError: a rule for `{{.*}}named.mlir` failed: AttributeError: 'Op' object has no attribute 'nothing'
// RAISES: where: {{.*}}raising_rules.py:3, in <lambda>
// RAISES: do: correct the rule
// SECOND: error: two rules for `stablehlo.sine`
// SECOND: where: pullback.rules.elementwise and second_rules
// WRONG: the rule for `acme.sine` in wrong_rules returned 0 cotangents instead of 1
// WRONG-NEXT: where: {{.*}}named.mlir:{{[0-9]+}}:8

// NONE: no file `{{.*}}nosuch.py`{{$}}
// NONE: do:    write `path/file.py` or `package.module`{{$}}

// JVP-LABEL: func.func @main
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[SINE:.*]] = stablehlo.composite "acme.sine" %[[X]]
// JVP: %[[COSINE:.*]] = stablehlo.cosine %[[X]]
// JVP: %[[DSINE:.*]] = stablehlo.multiply %[[DX]], %[[COSINE]]
// JVP: %[[MINUS:.*]] = stablehlo.composite "acme.negative" %[[SINE]]
// JVP: %[[DMINUS:.*]] = stablehlo.composite "acme.negative" %[[DSINE]]
// JVP: %[[SIZE:.*]] = stablehlo.composite "acme.modulus" %[[MINUS]]
// JVP: %[[SIGN:.*]] = stablehlo.divide %[[MINUS]], %[[SIZE]]
// JVP: %[[DSIZE:.*]] = stablehlo.multiply %[[DMINUS]], %[[SIGN]]
// JVP: %[[SUM:.*]] = stablehlo.add %[[SIZE]]
// JVP: return %[[SUM]], %[[DSIZE]]

// VJP-LABEL: func.func public @main
// VJP: %[[SIGN:.*]] = stablehlo.divide
// VJP: %[[PRODUCT:.*]] = stablehlo.multiply %{{.*}}, %[[SIGN]]
// VJP: stablehlo.negate %[[PRODUCT]]
// VJP: %[[COSINE:.*]] = stablehlo.cosine
// VJP: %[[CT:.*]] = stablehlo.multiply %{{.*}}, %[[COSINE]]
// VJP: return %{{.*}}, %[[CT]]

// WITHOUT-NOT: "acme.
// WITHOUT: stablehlo.sine
func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.composite "acme.sine" %x {decomposition = @sine} : (tensor<4xf64>) -> tensor<4xf64>
  %1 = stablehlo.composite "acme.negative" %0 {decomposition = @negative} : (tensor<4xf64>) -> tensor<4xf64>
  %2 = stablehlo.composite "acme.modulus" %1 {decomposition = @modulus} : (tensor<4xf64>) -> tensor<4xf64>
  %3 = stablehlo.composite "acme.quantize" %x {decomposition = @negative} : (tensor<4xf64>) -> tensor<4xf64>
  %4 = stablehlo.add %2, %3 : tensor<4xf64>
  return %4 : tensor<4xf64>
}
func.func private @sine(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.sine %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}
func.func private @negative(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.negate %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}
func.func private @modulus(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.abs %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}
