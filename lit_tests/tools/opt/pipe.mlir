// The tool reads '-' and writes text or bytecode, so it can be chained.
// RUN: pullback-opt --emit-bytecode < %s | pullback-opt - --inline-calls --cse \
// RUN:   | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[N:.*]] = stablehlo.negate %arg0
// CHECK-NEXT: %[[S:.*]] = stablehlo.add %[[N]], %[[N]]
// CHECK-NEXT: return %[[S]]
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @negate(%x) : (tensor<f32>) -> tensor<f32>
  %1 = stablehlo.negate %x : tensor<f32>
  %2 = stablehlo.add %0, %1 : tensor<f32>
  return %2 : tensor<f32>
}
func.func private @negate(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.negate %x : tensor<f32>
  return %0 : tensor<f32>
}
