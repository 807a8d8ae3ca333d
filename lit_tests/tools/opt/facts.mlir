// RUN: pullback-opt -version | filecheck %s --check-prefix=VERSION
// RUN: pullback-opt -show-dialects | filecheck %s --check-prefix=DIALECTS
// RUN: pullback-opt -list-passes --json | filecheck %s --check-prefix=JSON
// RUN: not pullback-opt --json %s 2>&1 | filecheck %s --check-prefix=ALONE
// RUN: not pullback-opt -debug-only=cse %s 2>&1 | filecheck %s --check-prefix=DEBUG
// RUN: not pullback-opt -log-actions-to=- %s 2>&1 | filecheck %s --check-prefix=ACTIONS

// VERSION: pullback {{.*}}, with jax {{.*}}; StableHLO {{[0-9.]+}}
// DIALECTS: Available dialects:
// DIALECTS: {{^}}chlo{{$}}
// DIALECTS: {{^}}quant{{$}}
// DIALECTS: {{^}}stablehlo{{$}}
// JSON: "passes": [
// JSON: "name": "inline-calls",
// JSON: "name": "max-ops",
// JSON-NEXT: "type": "an integer",
// JSON-NEXT: "default": "none"
// JSON: "pipelines": {
// JSON: "stock": {
// ALONE: error: --json says nothing without --list-passes
// DEBUG: error: --debug-only has nothing to print: jaxlib is built without LLVM's debug messages
// ACTIONS: error: --log-actions-to has nothing to write: the bindings of MLIR in jaxlib log no actions
