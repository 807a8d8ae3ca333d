// A misspelt pass is an error that names the closest one; nothing is written to stdout.
// RUN: not pullback-opt %s -p inline-call 2>&1 | filecheck %s

// CHECK: error: no pass is named 'inline-call'
// CHECK-NEXT: do: did you mean inline-calls
// CHECK-NOT: func.func
func.func @main() {
  return
}
