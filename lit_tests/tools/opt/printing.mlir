// RUN: pullback-opt -mlir-print-value-users %s | filecheck %s --check-prefix=USERS
// RUN: pullback-opt -mlir-print-value-users -mlir-print-op-generic %s | filecheck %s --check-prefix=GENERIC
// RUN: pullback-opt -mlir-use-nameloc-as-prefix %s | filecheck %s --check-prefix=NAMES
// RUN: pullback-opt -mlir-print-debuginfo %s | filecheck %s --check-prefix=FILE
// RUN: pullback-opt -cse -symbol-dce -mlir-pass-statistics %s 2>&1 | filecheck %s --check-prefix=STATISTICS

// USERS: stablehlo.sine{{.*}}  // users: %2, %3#0, %3#1{{$}}
// USERS-NEXT: stablehlo.sine{{.*}}  // user: %3#0, %3#1{{$}}
// USERS-NEXT: stablehlo.constant {{.*}}  // user: %2{{$}}
// USERS-NEXT: stablehlo.reduce{{.*}}  // unused{{$}}
// USERS: stablehlo.optimization_barrier{{.*}}  // users: (func.return), (unused){{$}}

// GENERIC: "stablehlo.add"{{.*}}  // user: stablehlo.return{{$}}

// NAMES: %angle = stablehlo.sine %arg0
// FILE: loc("{{.*}}printing.mlir":{{[0-9]+}}:{{[0-9]+}})
// FILE: loc("angle")

// STATISTICS: cse
// STATISTICS-NEXT: (S)      9 ops before, 5 after
// STATISTICS: (S)     -1 stablehlo.reduce
// STATISTICS: symbol-dce
// STATISTICS-NEXT: (S) {{.*}} ops before
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.sine %x : tensor<3xf32> loc("angle")
  %1 = stablehlo.sine %x : tensor<3xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  %3:2 = stablehlo.optimization_barrier %0, %1 : tensor<3xf32>, tensor<3xf32>
  return %3#0 : tensor<3xf32>
}
