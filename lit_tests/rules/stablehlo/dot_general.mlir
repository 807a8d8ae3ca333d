// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3xf64>, %w: tensor<3x4xf64>) -> tensor<2x4xf64> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT] : (tensor<2x3xf64>, tensor<3x4xf64>) -> tensor<2x4xf64>
  return %0 : tensor<2x4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[W:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DW:.*]]: {{.*}})
// JVP: %[[DOT_GENERAL:.*]] = stablehlo.dot_general %[[X]], %[[W]], contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT]
// JVP: %[[DOT_GENERAL1:.*]] = stablehlo.dot_general %[[DX]], %[[W]], contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT]
// JVP: %[[DOT_GENERAL2:.*]] = stablehlo.dot_general %[[X]], %[[DW]], contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT]
// JVP: %[[ADD:.*]] = stablehlo.add %[[DOT_GENERAL1]], %[[DOT_GENERAL2]]
// JVP: return %[[DOT_GENERAL]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[W:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[DOT_GENERAL:.*]] = stablehlo.dot_general %[[X]], %[[W]], contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT]
// VJP: %[[DOT_GENERAL1:.*]] = stablehlo.dot_general %[[CT]], %[[W]], contracting_dims = [1] x [1], precision = [HIGHEST, DEFAULT]
// VJP: %[[DOT_GENERAL2:.*]] = stablehlo.dot_general %[[X]], %[[CT]], contracting_dims = [0] x [0], precision = [HIGHEST, DEFAULT]
// VJP: return %[[DOT_GENERAL]], %[[DOT_GENERAL1]], %[[DOT_GENERAL2]]
