// RUN: pullback-opt %s --laplacian='wrt=0' --cse | filecheck %s

// Along each direction a value has a tangent; of second order, there is one value for all: the sum.
// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[X:.*]]: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
// CHECK: %[[T:.*]] = stablehlo.convert %{{.*}} : (tensor<3x3xi1>) -> tensor<3x3xf32>
// CHECK: %[[Y:.*]] = stablehlo.exponential %[[X]]
// CHECK: %[[TT:.*]] = stablehlo.multiply %[[T]], %[[T]]
// CHECK: %[[S:.*]] = stablehlo.reduce(%[[TT]] {{.*}} across dimensions = [0]
// CHECK: stablehlo.multiply %[[S]], %[[Y]] : tensor<3xf32>
// CHECK-NOT: tensor<3x3
// CHECK: return %[[Y]], %{{.*}}

func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.exponential %x : tensor<3xf32>
  return %0 : tensor<3xf32>
}
