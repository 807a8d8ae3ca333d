// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.power %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[POWER:.*]] = stablehlo.power %[[X]], %[[Y]]
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[C1:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[COMPARE:.*]] = stablehlo.compare EQ, %[[X]], %[[C]], FLOAT
// JVP: %[[COMPARE1:.*]] = stablehlo.compare EQ, %[[Y]], %[[C]], FLOAT
// JVP: %[[AND:.*]] = stablehlo.and %[[COMPARE]], %[[COMPARE1]]
// JVP: %[[SELECT:.*]] = stablehlo.select %[[AND]], %[[C1]], %[[X]]
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[Y]], %[[C1]]
// JVP: %[[POWER1:.*]] = stablehlo.power %[[SELECT]], %[[SUBTRACT]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[Y]], %[[POWER1]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[MULTIPLY]]
// JVP: %[[COMPARE2:.*]] = stablehlo.compare EQ, %[[X]], %[[C]], FLOAT
// JVP: %[[SELECT1:.*]] = stablehlo.select %[[COMPARE2]], %[[C1]], %[[X]]
// JVP: %[[LOG:.*]] = stablehlo.log %[[SELECT1]]
// JVP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[LOG]], %[[POWER]]
// JVP: %[[MULTIPLY3:.*]] = stablehlo.multiply %[[DY]], %[[MULTIPLY2]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY1]], %[[MULTIPLY3]]
// JVP: return %[[POWER]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[POWER:.*]] = stablehlo.power %[[X]], %[[Y]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[C1:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[COMPARE:.*]] = stablehlo.compare EQ, %[[X]], %[[C]], FLOAT
// VJP: %[[COMPARE1:.*]] = stablehlo.compare EQ, %[[Y]], %[[C]], FLOAT
// VJP: %[[AND:.*]] = stablehlo.and %[[COMPARE]], %[[COMPARE1]]
// VJP: %[[SELECT:.*]] = stablehlo.select %[[AND]], %[[C1]], %[[X]]
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[Y]], %[[C1]]
// VJP: %[[POWER1:.*]] = stablehlo.power %[[SELECT]], %[[SUBTRACT]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[Y]], %[[POWER1]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[MULTIPLY]]
// VJP: %[[COMPARE2:.*]] = stablehlo.compare EQ, %[[X]], %[[C]], FLOAT
// VJP: %[[SELECT1:.*]] = stablehlo.select %[[COMPARE2]], %[[C1]], %[[X]]
// VJP: %[[LOG:.*]] = stablehlo.log %[[SELECT1]]
// VJP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[LOG]], %[[POWER]]
// VJP: %[[MULTIPLY3:.*]] = stablehlo.multiply %[[CT]], %[[MULTIPLY2]]
// VJP: return %[[POWER]], %[[MULTIPLY1]], %[[MULTIPLY3]]
