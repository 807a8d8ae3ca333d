// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.remainder %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[REMAINDER:.*]] = stablehlo.remainder %[[X]], %[[Y]]
// JVP: %[[NUMBER:.*]] = stablehlo.compare EQ, %[[REMAINDER]], %[[REMAINDER]]
// JVP: %[[REST:.*]] = stablehlo.select %[[NUMBER]], %[[REMAINDER]], %{{.*}}
// JVP: %[[STEPS:.*]] = stablehlo.subtract %[[X]], %[[REST]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[STEPS]], %[[Y]]
// JVP: %[[WHOLE:.*]] = stablehlo.round_nearest_even %[[DIVIDE]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DY]], %[[WHOLE]]
// JVP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[DX]], %[[NEGATE]]
// JVP: return %[[REMAINDER]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[REMAINDER:.*]] = stablehlo.remainder %[[X]], %[[Y]]
// VJP: %[[NUMBER:.*]] = stablehlo.compare EQ, %[[REMAINDER]], %[[REMAINDER]]
// VJP: %[[REST:.*]] = stablehlo.select %[[NUMBER]], %[[REMAINDER]], %{{.*}}
// VJP: %[[STEPS:.*]] = stablehlo.subtract %[[X]], %[[REST]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[STEPS]], %[[Y]]
// VJP: %[[WHOLE:.*]] = stablehlo.round_nearest_even %[[DIVIDE]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[WHOLE]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY]]
// VJP: return %[[REMAINDER]], %[[CT]], %[[NEGATE]]
