// dL = L Phi(inverse(L) dA inverse(L)^H).
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%a: tensor<3x3xf64>) -> tensor<3x3xf64> {
  %0 = "stablehlo.cholesky"(%a) {lower = true} : (tensor<3x3xf64>) -> tensor<3x3xf64>
  return %0 : tensor<3x3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[A:.*]]: tensor<3x3xf64>, %[[DA:.*]]: tensor<3x3xf64>)
// JVP: %[[CHOLESKY:.*]] = stablehlo.cholesky %[[A]], lower = true
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[C_2:.*]] = stablehlo.constant dense<5.000000e-01>
// JVP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// JVP: %[[IOTA_2:.*]] = stablehlo.iota dim = 1
// JVP: %[[IS:.*]] = stablehlo.compare GE, %[[IOTA]], %[[IOTA_2]], SIGNED
// JVP: %[[SELECT:.*]] = stablehlo.select %[[IS]], %[[CHOLESKY]], %[[C]]
// JVP: %[[TRIANGULAR_SOLVE:.*]] = "stablehlo.triangular_solve"(%[[SELECT]], %[[DA]])
// JVP: %[[TRIANGULAR_SOLVE_2:.*]] = "stablehlo.triangular_solve"(%[[SELECT]], %[[TRIANGULAR_SOLVE]])
// JVP: %[[IOTA_3:.*]] = stablehlo.iota dim = 0
// JVP: %[[IOTA_4:.*]] = stablehlo.iota dim = 1
// JVP: %[[IS_2:.*]] = stablehlo.compare GT, %[[IOTA_3]], %[[IOTA_4]], SIGNED
// JVP: %[[SELECT_2:.*]] = stablehlo.select %[[IS_2]], %[[TRIANGULAR_SOLVE_2]], %[[C]]
// JVP: %[[IOTA_5:.*]] = stablehlo.iota dim = 0
// JVP: %[[IOTA_6:.*]] = stablehlo.iota dim = 1
// JVP: %[[IS_3:.*]] = stablehlo.compare GE, %[[IOTA_5]], %[[IOTA_6]], SIGNED
// JVP: %[[SELECT_3:.*]] = stablehlo.select %[[IS_3]], %[[TRIANGULAR_SOLVE_2]], %[[C]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[SELECT_3]], %[[SELECT_2]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[ADD]], %[[C_2]]
// JVP: %[[DOT_GENERAL:.*]] = stablehlo.dot_general %[[SELECT]], %[[MULTIPLY]], contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
// JVP: return %[[CHOLESKY]], %[[DOT_GENERAL]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[A:.*]]: tensor<3x3xf64>, %[[CT:.*]]: tensor<3x3xf64>)
// VJP: %[[CHOLESKY:.*]] = stablehlo.cholesky %[[A]], lower = true
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<5.000000e-01>
// VJP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// VJP: %[[IOTA_2:.*]] = stablehlo.iota dim = 1
// VJP: %[[IS:.*]] = stablehlo.compare GE, %[[IOTA]], %[[IOTA_2]], SIGNED
// VJP: %[[SELECT:.*]] = stablehlo.select %[[IS]], %[[CHOLESKY]], %[[C]]
// VJP: %[[TRANSPOSE:.*]] = stablehlo.transpose %[[SELECT]], dims = [1, 0]
// VJP: %[[DOT_GENERAL:.*]] = stablehlo.dot_general %[[TRANSPOSE]], %[[CT]], contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
// VJP: %[[IOTA_3:.*]] = stablehlo.iota dim = 0
// VJP: %[[IOTA_4:.*]] = stablehlo.iota dim = 1
// VJP: %[[IS_2:.*]] = stablehlo.compare GT, %[[IOTA_3]], %[[IOTA_4]], SIGNED
// VJP: %[[SELECT_2:.*]] = stablehlo.select %[[IS_2]], %[[DOT_GENERAL]], %[[C]]
// VJP: %[[IOTA_5:.*]] = stablehlo.iota dim = 0
// VJP: %[[IOTA_6:.*]] = stablehlo.iota dim = 1
// VJP: %[[IS_3:.*]] = stablehlo.compare GE, %[[IOTA_5]], %[[IOTA_6]], SIGNED
// VJP: %[[SELECT_3:.*]] = stablehlo.select %[[IS_3]], %[[DOT_GENERAL]], %[[C]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[SELECT_3]], %[[SELECT_2]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[ADD]], %[[C_2]]
// VJP: %[[TRIANGULAR_SOLVE:.*]] = "stablehlo.triangular_solve"(%[[SELECT]], %[[MULTIPLY]])
// VJP: %[[TRIANGULAR_SOLVE_2:.*]] = "stablehlo.triangular_solve"(%[[SELECT]], %[[TRIANGULAR_SOLVE]])
// VJP: return %[[CHOLESKY]], %[[TRIANGULAR_SOLVE_2]]
