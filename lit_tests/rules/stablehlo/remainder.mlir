// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.remainder %x, %y : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[REMAINDER:.*]] = stablehlo.remainder %[[X]], %[[Y]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[Y]]
// JVP: %[[SIGN:.*]] = stablehlo.sign %[[DIVIDE]]
// JVP: %[[ABS:.*]] = stablehlo.abs %[[DIVIDE]]
// JVP: %[[FLOOR:.*]] = stablehlo.floor %[[ABS]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[SIGN]], %[[FLOOR]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DY]], %[[MULTIPLY]]
// JVP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY1]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[DX]], %[[NEGATE]]
// JVP: return %[[REMAINDER]], %[[ADD]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[REMAINDER:.*]] = stablehlo.remainder %[[X]], %[[Y]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[X]], %[[Y]]
// VJP: %[[SIGN:.*]] = stablehlo.sign %[[DIVIDE]]
// VJP: %[[ABS:.*]] = stablehlo.abs %[[DIVIDE]]
// VJP: %[[FLOOR:.*]] = stablehlo.floor %[[ABS]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[SIGN]], %[[FLOOR]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[MULTIPLY]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY1]]
// VJP: return %[[REMAINDER]], %[[CT]], %[[NEGATE]]
