// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.subtract %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[X]], %[[Y]]
// JVP-NEXT: %[[SUBTRACT1:.*]] = stablehlo.subtract %[[DX]], %[[DY]]
// JVP-NEXT: return %[[SUBTRACT]], %[[SUBTRACT1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[X]], %[[Y]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[CT]]
// VJP: return %[[SUBTRACT]], %[[CT]], %[[NEGATE]]
