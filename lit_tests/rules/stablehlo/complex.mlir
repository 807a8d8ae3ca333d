// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xcomplex<f64>> {
  %0 = stablehlo.complex %x, %y : tensor<4xcomplex<f64>>
  return %0 : tensor<4xcomplex<f64>>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[COMPLEX:.*]] = stablehlo.complex %[[X]], %[[Y]]
// JVP: %[[COMPLEX1:.*]] = stablehlo.complex %[[DX]], %[[DY]]
// JVP: return %[[COMPLEX]], %[[COMPLEX1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[COMPLEX:.*]] = stablehlo.complex %[[X]], %[[Y]]
// VJP: %[[REAL:.*]] = stablehlo.real %[[CT]]
// VJP: %[[IMAG:.*]] = stablehlo.imag %[[CT]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[IMAG]]
// VJP: return %[[COMPLEX]], %[[REAL]], %[[NEGATE]]
