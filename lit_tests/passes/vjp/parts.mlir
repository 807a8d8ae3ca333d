// The cotangents of slices that lie side by side are one concatenation, with zeros where none lies.
// RUN: pullback-opt %s -p "vjp" | filecheck %s

func.func @main(%x: tensor<2x8xf64>) -> (tensor<2x3xf64>, tensor<2x4xf64>) {
  %late = stablehlo.slice %x [0:2, 4:8] : (tensor<2x8xf64>) -> tensor<2x4xf64>
  %early = stablehlo.slice %x [0:2, 0:3] : (tensor<2x8xf64>) -> tensor<2x3xf64>
  return %early, %late : tensor<2x3xf64>, tensor<2x4xf64>
}

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%{{.*}}: tensor<2x8xf64>, %[[EARLY:.*]]: tensor<2x3xf64>, %[[LATE:.*]]: tensor<2x4xf64>)
// CHECK: %[[GAP:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<2x1xf64>
// CHECK: %[[CT:.*]] = stablehlo.concatenate %[[EARLY]], %[[GAP]], %[[LATE]], dim = 1
// CHECK: return %{{.*}}, %{{.*}}, %[[CT]]
