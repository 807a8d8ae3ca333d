// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.divide %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[Y]]
// JVP: %[[DIVIDE1:.*]] = stablehlo.divide %[[DX]], %[[Y]]
// JVP: %[[DIVIDE2:.*]] = stablehlo.divide %[[DIVIDE]], %[[Y]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DY]], %[[DIVIDE2]]
// JVP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[DIVIDE1]], %[[NEGATE]]
// JVP: return %[[DIVIDE]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[Y]]
// VJP: %[[DIVIDE1:.*]] = stablehlo.divide %[[CT]], %[[Y]]
// VJP: %[[DIVIDE2:.*]] = stablehlo.divide %[[DIVIDE]], %[[Y]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[DIVIDE2]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY]]
// VJP: return %[[DIVIDE]], %[[DIVIDE1]], %[[NEGATE]]
