// RUN: pullback-opt --load-rules %S/Inputs/acme_calls.py --vjp %s | filecheck %s --check-prefix=VJP
// RUN: pullback-opt --load-rules %S/Inputs/acme_calls.py --vmap="entry=one size=5" %s | filecheck %s --check-prefix=VMAP
// RUN: not pullback-opt --vjp %s 2>&1 | filecheck %s --check-prefix=WITHOUT
// RUN: not pullback-opt --load-rules %S/Inputs/second_calls.py --vjp %s 2>&1 | filecheck %s --check-prefix=SECOND

// A rule for the calls of one target: its name is that of the op, and then of the target.

// WITHOUT: error: no derivative rule for `stablehlo.custom_call` @acme_sine
// WITHOUT: or register a rule for it (docs/extending.md#rules)
// SECOND: error: two rules for `stablehlo.custom_call @acme_sine`
// SECOND: where: acme_calls and second_calls

// VJP-LABEL: func.func @main
// VJP: %[[SINE:.*]] = stablehlo.custom_call @acme_sine(%arg0)
// VJP: %[[TWICE:.*]] = stablehlo.custom_call @acme_twice(%arg1)
// VJP: %[[STEP:.*]] = stablehlo.custom_call @acme_quantize(%[[SINE]])
// VJP: stablehlo.custom_call @acme_product
// VJP-DAG: stablehlo.cosine %arg0
// VJP-DAG: dense<2.000000e+00>
// VJP: return
func.func @main(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @acme_sine(%x) : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @acme_twice(%y) : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.custom_call @acme_quantize(%0) : (tensor<3xf32>) -> tensor<3xf32>
  %3 = stablehlo.add %0, %2 : tensor<3xf32>
  %4 = stablehlo.custom_call @acme_product(%3, %1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %4 : tensor<3xf32>
}

// VMAP-LABEL: func.func @one(%arg0: tensor<5x3xf32>)
// VMAP-NEXT: stablehlo.custom_call @acme_sine(%arg0) : (tensor<5x3xf32>) -> tensor<5x3xf32>
// VMAP-NEXT: stablehlo.custom_call @acme_twice(%0) : (tensor<5x3xf32>) -> tensor<5x3xf32>
func.func @one(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @acme_sine(%x) : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @acme_twice(%0) : (tensor<3xf32>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}
