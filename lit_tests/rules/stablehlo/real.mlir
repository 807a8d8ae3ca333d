// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xcomplex<f64>>) -> tensor<4xf64> {
  %0 = stablehlo.real %x : (tensor<4xcomplex<f64>>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xcomplex<f64>>, %[[DX:.*]]: tensor<4xcomplex<f64>>)
// JVP: %[[REAL:.*]] = stablehlo.real %[[X]]
// JVP: %[[REAL1:.*]] = stablehlo.real %[[DX]]
// JVP: return %[[REAL]], %[[REAL1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xcomplex<f64>>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[REAL:.*]] = stablehlo.real %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[COMPLEX:.*]] = stablehlo.complex %[[CT]], %[[C]]
// VJP: return %[[REAL]], %[[COMPLEX]]
