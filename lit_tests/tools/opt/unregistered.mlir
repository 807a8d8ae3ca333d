// RUN: not pullback-opt %s 2>&1 | filecheck %s --check-prefix=REFUSED --match-full-lines --strict-whitespace
// RUN: pullback-opt -allow-unregistered-dialect -verify-roundtrip %s | filecheck %s

// REFUSED:{{.*}}unregistered.mlir:9:12: error: operation being parsed with an unregistered dialect
// REFUSED-NEXT:  "acme.op"(%x) {key = #acme.value} : (tensor<f32>) -> ()
// REFUSED-NEXT:           ^
// REFUSED-NEXT:  do:    lower it to StableHLO and CHLO: jaxlib has few other dialects of MLIR
func.func @main(%x: tensor<f32>) {
  "acme.op"(%x) {key = #acme.value} : (tensor<f32>) -> ()
  // CHECK: "acme.op"(%arg0) {key = #acme.value} : (tensor<f32>) -> ()
  return
}
