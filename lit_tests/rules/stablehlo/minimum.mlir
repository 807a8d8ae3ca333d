// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.minimum %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[MINIMUM:.*]] = stablehlo.minimum %[[X]], %[[Y]]
// JVP: %[[COMPARE:.*]] = stablehlo.compare EQ, %[[Y]], %[[MINIMUM]], FLOAT
// JVP: %[[C:.*]] = stablehlo.constant dense<5.000000e-01>
// JVP: %[[C1:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[SELECT:.*]] = stablehlo.select %[[COMPARE]], %[[C]], %[[C1]]
// JVP: %[[COMPARE1:.*]] = stablehlo.compare EQ, %[[X]], %[[MINIMUM]], FLOAT
// JVP: %[[C2:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[SELECT1:.*]] = stablehlo.select %[[COMPARE1]], %[[SELECT]], %[[C2]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[SELECT1]]
// JVP: %[[COMPARE2:.*]] = stablehlo.compare EQ, %[[X]], %[[MINIMUM]], FLOAT
// JVP: %[[SELECT2:.*]] = stablehlo.select %[[COMPARE2]], %[[C]], %[[C1]]
// JVP: %[[COMPARE3:.*]] = stablehlo.compare EQ, %[[Y]], %[[MINIMUM]], FLOAT
// JVP: %[[SELECT3:.*]] = stablehlo.select %[[COMPARE3]], %[[SELECT2]], %[[C2]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DY]], %[[SELECT3]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[MULTIPLY1]]
// JVP: return %[[MINIMUM]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[MINIMUM:.*]] = stablehlo.minimum %[[X]], %[[Y]]
// VJP: %[[COMPARE:.*]] = stablehlo.compare EQ, %[[Y]], %[[MINIMUM]], FLOAT
// VJP: %[[C:.*]] = stablehlo.constant dense<5.000000e-01>
// VJP: %[[C1:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[SELECT:.*]] = stablehlo.select %[[COMPARE]], %[[C]], %[[C1]]
// VJP: %[[COMPARE1:.*]] = stablehlo.compare EQ, %[[X]], %[[MINIMUM]], FLOAT
// VJP: %[[C2:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT1:.*]] = stablehlo.select %[[COMPARE1]], %[[SELECT]], %[[C2]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[SELECT1]]
// VJP: %[[COMPARE2:.*]] = stablehlo.compare EQ, %[[X]], %[[MINIMUM]], FLOAT
// VJP: %[[SELECT2:.*]] = stablehlo.select %[[COMPARE2]], %[[C]], %[[C1]]
// VJP: %[[COMPARE3:.*]] = stablehlo.compare EQ, %[[Y]], %[[MINIMUM]], FLOAT
// VJP: %[[SELECT3:.*]] = stablehlo.select %[[COMPARE3]], %[[SELECT2]], %[[C2]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[SELECT3]]
// VJP: return %[[MINIMUM]], %[[MULTIPLY]], %[[MULTIPLY1]]
