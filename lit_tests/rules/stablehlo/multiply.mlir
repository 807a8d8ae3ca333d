// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.multiply %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[Y]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[Y]]
// JVP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[X]], %[[DY]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY1]], %[[MULTIPLY2]]
// JVP: return %[[MULTIPLY]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[Y]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[Y]]
// VJP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[X]], %[[CT]]
// VJP: return %[[MULTIPLY]], %[[MULTIPLY1]], %[[MULTIPLY2]]

func.func @square(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.multiply %x, %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}
// RUN: pullback-opt %s -p "jvp{entry=square}" | filecheck %s --check-prefix=SQUARE
// RUN: pullback-opt %s -p "vjp{entry=square}" | filecheck %s --check-prefix=TWICE
// SQUARE-LABEL: func.func @square
// SQUARE-SAME: (%[[X:.*]]: {{.*}}, %[[T:.*]]: {{.*}})
// SQUARE: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// SQUARE: %[[HALF:.*]] = stablehlo.multiply %[[T]], %[[X]]
// SQUARE: %[[ADD:.*]] = stablehlo.add %[[HALF]], %[[HALF]]
// SQUARE: return %[[MULTIPLY]], %[[ADD]]

// TWICE-LABEL: func.func @square
// TWICE-SAME: (%[[X:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// TWICE: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// TWICE: %[[TWO:.*]] = stablehlo.constant dense<2.000000e+00>
// TWICE: %[[DOUBLE:.*]] = stablehlo.multiply %[[X]], %[[TWO]]
// TWICE: %[[OF_X:.*]] = stablehlo.multiply %[[CT]], %[[DOUBLE]]
// TWICE: return %[[MULTIPLY]], %[[OF_X]]
