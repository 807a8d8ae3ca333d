// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xcomplex<f64>>) -> tensor<4xcomplex<f64>> {
  %0 = chlo.conj %x : tensor<4xcomplex<f64>> -> tensor<4xcomplex<f64>>
  return %0 : tensor<4xcomplex<f64>>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xcomplex<f64>>, %[[DX:.*]]: tensor<4xcomplex<f64>>)
// JVP: %[[CONJ:.*]] = chlo.conj %[[X]]
// JVP: %[[CONJ1:.*]] = chlo.conj %[[DX]]
// JVP: return %[[CONJ]], %[[CONJ1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xcomplex<f64>>, %[[CT:.*]]: tensor<4xcomplex<f64>>)
// VJP: %[[CONJ:.*]] = chlo.conj %[[X]]
// VJP: %[[REAL:.*]] = stablehlo.real %[[CT]]
// VJP: %[[IMAG:.*]] = stablehlo.imag %[[CT]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[IMAG]]
// VJP: %[[COMPLEX:.*]] = stablehlo.complex %[[REAL]], %[[NEGATE]]
// VJP: return %[[CONJ]], %[[COMPLEX]]
