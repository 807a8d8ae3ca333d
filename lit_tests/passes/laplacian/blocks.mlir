// RUN: pullback-opt %s --laplacian='block=2' | filecheck %s
// RUN: not pullback-opt %s --laplacian='block=0' 2>&1 | filecheck %s --check-prefix=ZERO

// The last block, of one direction, is swept here; those before in a loop that adds up.
// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.*]]: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>)
// CHECK: %[[LAST:.*]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK: tensor<1x5xf32>
// CHECK: %[[Y:.*]] = stablehlo.exponential %[[X]]
// CHECK: %[[SUM:.*]]:2 = stablehlo.while
// CHECK: stablehlo.compare LT, {{.*}}
// CHECK: %[[PART:.*]] = func.call @main.block(%[[X]], %{{.*}}) : (tensor<5xf32>, tensor<i32>) -> tensor<5xf32>
// CHECK: stablehlo.add %{{.*}}, %[[PART]]
// CHECK: return %[[Y]], %[[SUM]]#1

// CHECK: func.func private @main.block
// CHECK: tensor<2x5xf32>

// ZERO: a Laplacian in blocks of 0

func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
  %0 = stablehlo.exponential %x : tensor<5xf32>
  return %0 : tensor<5xf32>
}
