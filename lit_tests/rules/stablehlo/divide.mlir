// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.divide %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[Y]]
// JVP-NEXT: %[[DIVIDE1:.*]] = stablehlo.divide %[[DX]], %[[Y]]
// JVP-NEXT: %[[DIVIDE2:.*]] = stablehlo.divide %[[DY]], %[[Y]]
// JVP-NEXT: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DIVIDE2]], %[[DIVIDE]]
// JVP-NEXT: %[[SUBTRACT:.*]] = stablehlo.subtract %[[DIVIDE1]], %[[MULTIPLY]]
// JVP-NEXT: return %[[DIVIDE]], %[[SUBTRACT]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[Y]]
// VJP-NEXT: %[[DIVIDE1:.*]] = stablehlo.divide %[[CT]], %[[Y]]
// VJP-NEXT: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DIVIDE1]], %[[DIVIDE]]
// VJP-NEXT: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY]]
// VJP-NEXT: return %[[DIVIDE]], %[[DIVIDE1]], %[[NEGATE]]
