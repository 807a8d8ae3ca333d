// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3xf64>, %w: tensor<3xf64>) -> tensor<2xf64> {
  %0 = stablehlo.dot %x, %w : (tensor<2x3xf64>, tensor<3xf64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[W:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DW:.*]]: {{.*}})
// JVP: %[[DOT:.*]] = stablehlo.dot %[[X]], %[[W]]
// JVP: %[[DOT1:.*]] = stablehlo.dot %[[DX]], %[[W]]
// JVP: %[[DOT2:.*]] = stablehlo.dot %[[X]], %[[DW]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[DOT1]], %[[DOT2]]
// JVP: return %[[DOT]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[W:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[DOT:.*]] = stablehlo.dot %[[X]], %[[W]]
// VJP: %[[DOT_GENERAL:.*]] = stablehlo.dot_general %[[CT]], %[[W]], contracting_dims = [] x []
// VJP: %[[DOT_GENERAL1:.*]] = stablehlo.dot_general %[[CT]], %[[X]], contracting_dims = [0] x [0]
// VJP: return %[[DOT]], %[[DOT_GENERAL]], %[[DOT_GENERAL1]]
