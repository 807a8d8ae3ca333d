// `max-ops` keeps large callees; `in-loops` inlines them all the same inside a while, with those
// that they call.
// RUN: pullback-opt %s --inline-calls="max-ops=1" | filecheck %s --check-prefix=SMALL
// RUN: pullback-opt %s --inline-calls="max-ops=1 in-loops=true" | filecheck %s --check-prefix=LOOP

// SMALL-LABEL: func.func @main
// SMALL: call @large
// SMALL-NOT: call @small
// SMALL: stablehlo.while
// SMALL: func.call @large
// LOOP-LABEL: func.func @main
// LOOP: call @large
// LOOP: stablehlo.while
// LOOP: stablehlo.negate
// LOOP-NEXT: stablehlo.abs
// LOOP-NEXT: stablehlo.return
// LOOP-LABEL: func.func private @large
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @large(%x) : (tensor<f32>) -> tensor<f32>
  %1 = call @small(%0) : (tensor<f32>) -> tensor<f32>
  %2 = stablehlo.while(%i = %1) : tensor<f32> cond {
    %more = stablehlo.compare LT, %i, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = func.call @wrapper(%i) : (tensor<f32>) -> tensor<f32>
    stablehlo.return %next : tensor<f32>
  }
  return %2 : tensor<f32>
}
func.func private @large(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  %1 = stablehlo.abs %0 : tensor<f32>
  return %1 : tensor<f32>
}
func.func private @small(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func private @wrapper(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @large(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
