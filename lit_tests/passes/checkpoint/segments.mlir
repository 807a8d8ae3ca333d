// Straight-line code becomes checkpoints, whose second run is in a branch; the last one is no
// checkpoint. A constant is cloned into the functions that use it.
// RUN: pullback-opt %s --checkpoint=bytes=28 | filecheck %s
// RUN: pullback-opt %s --checkpoint=bytes=28 --vjp | filecheck %s --check-prefix=VJP
// RUN: pullback-opt %s --checkpoint=bytes=1000 | filecheck %s --check-prefix=FITS

// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]] = call @segment(%arg0)
// CHECK: stablehlo.multiply %[[A]]
// CHECK: stablehlo.sine
// CHECK-LABEL: func.func private @segment
// CHECK-SAME: pullback.checkpoint
// CHECK-SAME: pullback.guarded
// CHECK: stablehlo.constant dense<2.000000e+00>

// VJP-LABEL: func.func @main
// VJP: %[[TRUE:.*]] = stablehlo.optimization_barrier %{{.*}} : tensor<i1>
// VJP: "stablehlo.if"(%[[TRUE]])

// FITS-LABEL: func.func @main
// FITS-NOT: call

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %two = stablehlo.constant dense<2.0> : tensor<f32>
  %0 = stablehlo.sine %x : tensor<f32>
  %1 = stablehlo.multiply %0, %two : tensor<f32>
  %2 = stablehlo.sine %1 : tensor<f32>
  %3 = stablehlo.multiply %2, %two : tensor<f32>
  %4 = stablehlo.sine %3 : tensor<f32>
  %5 = stablehlo.multiply %4, %two : tensor<f32>
  %6 = stablehlo.sine %5 : tensor<f32>
  %7 = stablehlo.multiply %6, %two : tensor<f32>
  %8 = stablehlo.sine %7 : tensor<f32>
  %9 = stablehlo.multiply %8, %two : tensor<f32>
  %10 = stablehlo.sine %9 : tensor<f32>
  %11 = stablehlo.multiply %10, %two : tensor<f32>
  %12 = stablehlo.sine %11 : tensor<f32>
  %13 = stablehlo.multiply %12, %two : tensor<f32>
  %14 = stablehlo.sine %13 : tensor<f32>
  %15 = stablehlo.multiply %14, %two : tensor<f32>
  %16 = stablehlo.sine %15 : tensor<f32>
  %17 = stablehlo.multiply %16, %two : tensor<f32>
  return %17 : tensor<f32>
}
