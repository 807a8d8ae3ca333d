// Both modes solve with the same matrix, or with its transpose.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%a: tensor<3x3xf64>, %b: tensor<3x2xf64>) -> tensor<3x2xf64> {
  %0 = "stablehlo.triangular_solve"(%a, %b) {left_side = true, lower = true,
    unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}
    : (tensor<3x3xf64>, tensor<3x2xf64>) -> tensor<3x2xf64>
  return %0 : tensor<3x2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[A:.*]]: tensor<3x3xf64>, %[[B:.*]]: tensor<3x2xf64>, %[[DA:.*]]: tensor<3x3xf64>, %[[DB:.*]]: tensor<3x2xf64>)
// JVP: %[[TRIANGULAR_SOLVE:.*]] = "stablehlo.triangular_solve"(%[[A]], %[[B]])
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// JVP: %[[IOTA_2:.*]] = stablehlo.iota dim = 1
// JVP: %[[IS:.*]] = stablehlo.compare GE, %[[IOTA]], %[[IOTA_2]], SIGNED
// JVP: %[[SELECT:.*]] = stablehlo.select %[[IS]], %[[DA]], %[[C]]
// JVP: %[[DOT_GENERAL:.*]] = stablehlo.dot_general %[[SELECT]], %[[TRIANGULAR_SOLVE]], contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[DB]], %[[DOT_GENERAL]]
// JVP: %[[TRIANGULAR_SOLVE_2:.*]] = "stablehlo.triangular_solve"(%[[A]], %[[SUBTRACT]])
// JVP: return %[[TRIANGULAR_SOLVE]], %[[TRIANGULAR_SOLVE_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[A:.*]]: tensor<3x3xf64>, %[[B:.*]]: tensor<3x2xf64>, %[[CT:.*]]: tensor<3x2xf64>)
// VJP: %[[TRIANGULAR_SOLVE:.*]] = "stablehlo.triangular_solve"(%[[A]], %[[B]])
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[TRIANGULAR_SOLVE_2:.*]] = "stablehlo.triangular_solve"(%[[A]], %[[CT]])
// VJP: %[[TRANSPOSE:.*]] = stablehlo.transpose %[[TRIANGULAR_SOLVE]], dims = [1, 0]
// VJP: %[[DOT_GENERAL:.*]] = stablehlo.dot_general %[[TRIANGULAR_SOLVE_2]], %[[TRANSPOSE]], contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[DOT_GENERAL]]
// VJP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// VJP: %[[IOTA_2:.*]] = stablehlo.iota dim = 1
// VJP: %[[IS:.*]] = stablehlo.compare GE, %[[IOTA]], %[[IOTA_2]], SIGNED
// VJP: %[[SELECT:.*]] = stablehlo.select %[[IS]], %[[NEGATE]], %[[C]]
// VJP: return %[[TRIANGULAR_SOLVE]], %[[SELECT]], %[[TRIANGULAR_SOLVE_2]]
