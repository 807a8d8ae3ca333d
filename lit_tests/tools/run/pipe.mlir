// Three tools in a row: Python to IR, IR to StableHLO, StableHLO to numbers.
// RUN: pullback dump %S/../../../examples/rules.py:train_step | pullback opt --pass-pipeline='builtin.module(to-stablehlo)' - | pullback run - --random 0 --compare --tolerance 1e-4 | filecheck %s

// CHECK: result 0: f32[]
// CHECK: largest difference of xla and interpreter:
