// RUN: pullback-opt -cse -p symbol-dce --inline-calls="max-ops=3" -verify-each=false -dump-pass-pipeline -o=- %s 2>&1 | filecheck %s
// RUN: not pullback-opt -csee %s 2>&1 | filecheck %s --check-prefix=TYPO
// RUN: not pullback-opt --mlir-timming %s 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: pullback-opt -mlir-disable-threading -mlir-print-ir-module-scope -cse -mlir-print-ir-after-all %s 2>&1 | filecheck %s --check-prefix=SCOPE

// One dash does as well as two, an option may stand before or behind `=`, and passes keep their order.

// CHECK: builtin.module(cse,symbol-dce,inline-calls{max-ops=3})
// CHECK: func.func @main
// TYPO: No such option '--csee'. Did you mean '--cse'?
// OPTION: No such option '--mlir-timming'. Did you mean '--mlir-timing'?
// SCOPE: IR Dump After CSE
// SCOPE-NEXT: module
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
