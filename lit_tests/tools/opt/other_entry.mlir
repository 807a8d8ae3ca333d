// The function that a pass takes is named by its option `entry=`, and not by `--entry`, as in other commands.
// RUN: not pullback-opt --jvp %s 2>&1 | filecheck %s
// RUN: not pullback-opt --vjp="entry=h" %s 2>&1 | filecheck %s --check-prefix=NAMED
// RUN: pullback-opt --jvp="entry=g" %s | filecheck %s --check-prefix=DERIVED
// RUN: not pullback derive --grad %s 2>&1 | filecheck %s --check-prefix=COMMAND

// CHECK: error: no function `@main` in the module
// CHECK-NEXT: do: name one of: entry=f, entry=g
// NAMED: error: no function `@h` in the module
// NAMED-NEXT: do: name one of: entry=f, entry=g
// DERIVED: func.func @g({{.*}}, {{.*}}) -> (tensor<f32>, tensor<f32>)
// COMMAND: do: name the function to call: --entry …
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func @g(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
