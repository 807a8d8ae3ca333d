// The transpose of a real transform counts what it leaves out twice.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<6xf64>) -> tensor<4xcomplex<f64>> {
  %0 = stablehlo.fft %x, type = RFFT, length = [6] : (tensor<6xf64>) -> tensor<4xcomplex<f64>>
  return %0 : tensor<4xcomplex<f64>>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<6xf64>, %[[DX:.*]]: tensor<6xf64>)
// JVP: %[[FFT:.*]] = stablehlo.fft %[[X]], type = RFFT, length = [6]
// JVP: %[[FFT_2:.*]] = stablehlo.fft %[[DX]], type = RFFT, length = [6]
// JVP: return %[[FFT]], %[[FFT_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<6xf64>, %[[CT:.*]]: tensor<4xcomplex<f64>>)
// VJP: %[[FFT:.*]] = stablehlo.fft %[[X]], type = RFFT, length = [6]
// VJP: %[[C:.*]] = stablehlo.constant dense<0>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<3>
// VJP: %[[C_3:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[C_4:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[COMPLEX_2:.*]] = stablehlo.complex %[[C_3]], %[[C_4]]
// VJP: %[[C_5:.*]] = stablehlo.constant dense<5.000000e-01>
// VJP: %[[COMPLEX_3:.*]] = stablehlo.complex %[[C_5]], %[[C_4]]
// VJP: %[[C_6:.*]] = stablehlo.constant dense<6.000000e+00>
// VJP: %[[REAL:.*]] = stablehlo.real %[[CT]]
// VJP: %[[IMAG:.*]] = stablehlo.imag %[[CT]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[IMAG]]
// VJP: %[[COMPLEX:.*]] = stablehlo.complex %[[REAL]], %[[NEGATE]]
// VJP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// VJP: %[[IS:.*]] = stablehlo.compare EQ, %[[IOTA]], %[[C]], SIGNED
// VJP: %[[IS_2:.*]] = stablehlo.compare EQ, %[[IOTA]], %[[C_2]], SIGNED
// VJP: %[[OR:.*]] = stablehlo.or %[[IS]], %[[IS_2]]
// VJP: %[[SELECT:.*]] = stablehlo.select %[[OR]], %[[COMPLEX_2]], %[[COMPLEX_3]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[COMPLEX]], %[[SELECT]]
// VJP: %[[FFT_2:.*]] = stablehlo.fft %[[MULTIPLY]], type = IRFFT, length = [6]
// VJP: %[[MULTIPLY_2:.*]] = stablehlo.multiply %[[FFT_2]], %[[C_6]]
// VJP: return %[[FFT]], %[[MULTIPLY_2]]
