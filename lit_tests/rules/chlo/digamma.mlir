// Left of 0 by reflection: XLA's polygamma is another number below -9.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.digamma %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[DIGAMMA:.*]] = chlo.digamma %[[X]]
// JVP: %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[LEFT:.*]] = stablehlo.compare LT, %[[X]]
// JVP: %[[MIRRORED:.*]] = stablehlo.subtract %[[ONE]], %[[X]]
// JVP: %[[POSITIVE:.*]] = stablehlo.select %[[LEFT]], %[[MIRRORED]], %[[X]]
// JVP: %[[POLYGAMMA:.*]] = chlo.polygamma %[[ONE]], %[[POSITIVE]]
// JVP: %[[SINE:.*]] = stablehlo.sine
// JVP: %[[ROOT:.*]] = stablehlo.divide %{{.*}}, %[[SINE]]
// JVP: %[[SQUARE:.*]] = stablehlo.multiply %[[ROOT]], %[[ROOT]]
// JVP: %[[REFLECTED:.*]] = stablehlo.subtract %[[SQUARE]], %[[POLYGAMMA]]
// JVP: %[[SLOPE:.*]] = stablehlo.select %[[LEFT]], %[[REFLECTED]], %[[POLYGAMMA]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[SLOPE]]
// JVP: return %[[DIGAMMA]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[DIGAMMA:.*]] = chlo.digamma %[[X]]
// VJP: %[[ONE:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[LEFT:.*]] = stablehlo.compare LT, %[[X]]
// VJP: %[[MIRRORED:.*]] = stablehlo.subtract %[[ONE]], %[[X]]
// VJP: %[[POSITIVE:.*]] = stablehlo.select %[[LEFT]], %[[MIRRORED]], %[[X]]
// VJP: %[[POLYGAMMA:.*]] = chlo.polygamma %[[ONE]], %[[POSITIVE]]
// VJP: %[[SINE:.*]] = stablehlo.sine
// VJP: %[[ROOT:.*]] = stablehlo.divide %{{.*}}, %[[SINE]]
// VJP: %[[SQUARE:.*]] = stablehlo.multiply %[[ROOT]], %[[ROOT]]
// VJP: %[[REFLECTED:.*]] = stablehlo.subtract %[[SQUARE]], %[[POLYGAMMA]]
// VJP: %[[SLOPE:.*]] = stablehlo.select %[[LEFT]], %[[REFLECTED]], %[[POLYGAMMA]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[SLOPE]]
// VJP: return %[[DIGAMMA]], %[[MULTIPLY]]
