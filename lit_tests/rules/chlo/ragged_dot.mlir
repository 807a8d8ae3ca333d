// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<7x3xf64>, %y: tensor<2x3x4xf64>, %n: tensor<2xi32>) -> tensor<7x4xf64> {
  %0 = "chlo.ragged_dot"(%x, %y, %n) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<7x3xf64>, tensor<2x3x4xf64>, tensor<2xi32>) -> tensor<7x4xf64>
  return %0 : tensor<7x4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[N:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[RAGGED_DOT:.*]] = "chlo.ragged_dot"(%[[X]], %[[Y]], %[[N]]) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}>
// JVP: %[[COMPARE:.*]] = stablehlo.compare LE, %[[VALUE:.*]], %[[VALUE1:.*]], SIGNED
// JVP: %[[SELECT:.*]] = stablehlo.select %[[COMPARE]], %[[VALUE2:.*]], %[[VALUE3:.*]]
// JVP: %[[REDUCE:.*]] = stablehlo.reduce(%[[SELECT]] init: %[[VALUE4:.*]]) applies stablehlo.add across dimensions = [1]
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[REDUCE]], %[[N]]
// JVP: %[[COMPARE1:.*]] = stablehlo.compare LE, %[[VALUE5:.*]], %[[VALUE6:.*]], SIGNED
// JVP: %[[COMPARE2:.*]] = stablehlo.compare LT, %[[VALUE6]], %[[VALUE7:.*]], SIGNED
// JVP: %[[AND:.*]] = stablehlo.and %[[COMPARE1]], %[[COMPARE2]]
// JVP: %[[SELECT1:.*]] = stablehlo.select %[[AND]], %[[VALUE8:.*]], %[[VALUE9:.*]]
// JVP: %[[DOT_GENERAL:.*]] = stablehlo.dot_general %[[SELECT1]], %[[Y]], contracting_dims = [2, 0] x [1, 0]
// JVP: %[[SELECT2:.*]] = stablehlo.select %[[AND]], %[[VALUE10:.*]], %[[VALUE11:.*]]
// JVP: %[[DOT_GENERAL1:.*]] = stablehlo.dot_general %[[SELECT2]], %[[Y]], contracting_dims = [2, 0] x [1, 0]
// JVP: %[[DOT_GENERAL2:.*]] = stablehlo.dot_general %[[SELECT1]], %[[DY]], contracting_dims = [2, 0] x [1, 0]
// JVP: %[[ADD:.*]] = stablehlo.add %[[DOT_GENERAL1]], %[[DOT_GENERAL2]]
// JVP: return %[[RAGGED_DOT]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[N:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[RAGGED_DOT:.*]] = "chlo.ragged_dot"(%[[X]], %[[Y]], %[[N]]) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}>
// VJP: %[[COMPARE:.*]] = stablehlo.compare LE, %[[VALUE:.*]], %[[VALUE1:.*]], SIGNED
// VJP: %[[SELECT:.*]] = stablehlo.select %[[COMPARE]], %[[VALUE2:.*]], %[[VALUE3:.*]]
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[SELECT]] init: %[[VALUE4:.*]]) applies stablehlo.add across dimensions = [1]
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[REDUCE]], %[[N]]
// VJP: %[[COMPARE1:.*]] = stablehlo.compare LE, %[[VALUE5:.*]], %[[VALUE6:.*]], SIGNED
// VJP: %[[COMPARE2:.*]] = stablehlo.compare LT, %[[VALUE6]], %[[VALUE7:.*]], SIGNED
// VJP: %[[AND:.*]] = stablehlo.and %[[COMPARE1]], %[[COMPARE2]]
// VJP: %[[SELECT1:.*]] = stablehlo.select %[[AND]], %[[VALUE8:.*]], %[[VALUE9:.*]]
// VJP: %[[DOT_GENERAL1:.*]] = stablehlo.dot_general %[[CT]], %[[Y]], contracting_dims = [1] x [2]
// VJP: %[[TRANSPOSE:.*]] = stablehlo.transpose %[[DOT_GENERAL1]], dims = [1, 0, 2]
// VJP: %[[DOT_GENERAL2:.*]] = stablehlo.dot_general %[[SELECT1]], %[[CT]], contracting_dims = [1] x [0]
// VJP: %[[SELECT2:.*]] = stablehlo.select %[[AND]], %[[TRANSPOSE]], %[[VALUE10:.*]]
// VJP: %[[REDUCE1:.*]] = stablehlo.reduce(%[[SELECT2]] init: %[[VALUE11:.*]]) applies stablehlo.add across dimensions = [0]
// VJP: return %[[RAGGED_DOT]], %[[REDUCE1]], %[[DOT_GENERAL2]]
