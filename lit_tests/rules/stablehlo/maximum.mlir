// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.maximum %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[MAXIMUM:.*]] = stablehlo.maximum %[[X]], %[[Y]]
// JVP: %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[HALF:.*]] = stablehlo.constant dense<5.000000e-01>
// JVP: %[[WON:.*]] = stablehlo.compare GT, %[[X]], %[[Y]], FLOAT
// JVP: %[[WHOLE:.*]] = stablehlo.select %[[WON]], %[[ONE]], %[[ZERO]]
// JVP: %[[TIE:.*]] = stablehlo.compare EQ, %[[X]], %[[Y]], FLOAT
// JVP: %[[SHARE:.*]] = stablehlo.select %[[TIE]], %[[HALF]], %[[WHOLE]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[SHARE]]
// JVP: %[[WON1:.*]] = stablehlo.compare GT, %[[Y]], %[[X]], FLOAT
// JVP: %[[WHOLE1:.*]] = stablehlo.select %[[WON1]], %[[ONE]], %[[ZERO]]
// JVP: %[[TIE1:.*]] = stablehlo.compare EQ, %[[Y]], %[[X]], FLOAT
// JVP: %[[SHARE1:.*]] = stablehlo.select %[[TIE1]], %[[HALF]], %[[WHOLE1]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DY]], %[[SHARE1]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[MULTIPLY1]]
// JVP: return %[[MAXIMUM]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[MAXIMUM:.*]] = stablehlo.maximum %[[X]], %[[Y]]
// VJP: %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[HALF:.*]] = stablehlo.constant dense<5.000000e-01>
// VJP: %[[WON:.*]] = stablehlo.compare GT, %[[X]], %[[Y]], FLOAT
// VJP: %[[WHOLE:.*]] = stablehlo.select %[[WON]], %[[ONE]], %[[ZERO]]
// VJP: %[[TIE:.*]] = stablehlo.compare EQ, %[[X]], %[[Y]], FLOAT
// VJP: %[[SHARE:.*]] = stablehlo.select %[[TIE]], %[[HALF]], %[[WHOLE]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[SHARE]]
// VJP: %[[WON1:.*]] = stablehlo.compare GT, %[[Y]], %[[X]], FLOAT
// VJP: %[[WHOLE1:.*]] = stablehlo.select %[[WON1]], %[[ONE]], %[[ZERO]]
// VJP: %[[TIE1:.*]] = stablehlo.compare EQ, %[[Y]], %[[X]], FLOAT
// VJP: %[[SHARE1:.*]] = stablehlo.select %[[TIE1]], %[[HALF]], %[[WHOLE1]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[SHARE1]]
// VJP: return %[[MAXIMUM]], %[[MULTIPLY]], %[[MULTIPLY1]]
