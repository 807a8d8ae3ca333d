// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.atan2 %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[ATAN2:.*]] = stablehlo.atan2 %[[X]], %[[Y]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[Y]], %[[Y]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[MULTIPLY1]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[Y]], %[[ADD]]
// JVP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[DX]], %[[DIVIDE]]
// JVP: %[[NEGATE:.*]] = stablehlo.negate %[[X]]
// JVP: %[[MULTIPLY3:.*]] = stablehlo.multiply %[[X]], %[[X]]
// JVP: %[[MULTIPLY4:.*]] = stablehlo.multiply %[[Y]], %[[Y]]
// JVP: %[[ADD1:.*]] = stablehlo.add %[[MULTIPLY3]], %[[MULTIPLY4]]
// JVP: %[[DIVIDE1:.*]] = stablehlo.divide %[[NEGATE]], %[[ADD1]]
// JVP: %[[MULTIPLY5:.*]] = stablehlo.multiply %[[DY]], %[[DIVIDE1]]
// JVP: %[[ADD2:.*]] = stablehlo.add %[[MULTIPLY2]], %[[MULTIPLY5]]
// JVP: return %[[ATAN2]], %[[ADD2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[ATAN2:.*]] = stablehlo.atan2 %[[X]], %[[Y]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[X]], %[[X]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[Y]], %[[Y]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY]], %[[MULTIPLY1]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[Y]], %[[ADD]]
// VJP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[CT]], %[[DIVIDE]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[X]]
// VJP: %[[MULTIPLY3:.*]] = stablehlo.multiply %[[X]], %[[X]]
// VJP: %[[MULTIPLY4:.*]] = stablehlo.multiply %[[Y]], %[[Y]]
// VJP: %[[ADD1:.*]] = stablehlo.add %[[MULTIPLY3]], %[[MULTIPLY4]]
// VJP: %[[DIVIDE1:.*]] = stablehlo.divide %[[NEGATE]], %[[ADD1]]
// VJP: %[[MULTIPLY5:.*]] = stablehlo.multiply %[[CT]], %[[DIVIDE1]]
// VJP: return %[[ATAN2]], %[[MULTIPLY2]], %[[MULTIPLY5]]
