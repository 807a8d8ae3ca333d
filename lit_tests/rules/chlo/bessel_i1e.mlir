// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = chlo.bessel_i1e %x : tensor<4xf64> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[BESSEL_I1E:.*]] = chlo.bessel_i1e %[[X]]
// JVP: %[[ABS:.*]] = stablehlo.abs %[[X]]
// JVP: %[[COMPARE:.*]] = stablehlo.compare LE, %[[ABS]], %[[VALUE:.*]], FLOAT
// JVP: %[[SELECT:.*]] = stablehlo.select %[[COMPARE]], %[[VALUE]], %[[X]]
// JVP: %[[ABS1:.*]] = stablehlo.abs %[[SELECT]]
// JVP: %[[COMPARE1:.*]] = stablehlo.compare LE, %[[ABS1]], %[[VALUE1:.*]], FLOAT
// JVP: %[[SELECT1:.*]] = stablehlo.select %[[COMPARE1]], %[[ABS1]], %[[VALUE1]]
// JVP: %[[SELECT2:.*]] = stablehlo.select %[[COMPARE1]], %[[VALUE1]], %[[ABS1]]
// JVP: %[[SQRT:.*]] = stablehlo.sqrt %[[SELECT2]]
// JVP: %[[SELECT3:.*]] = stablehlo.select %[[COMPARE1]], %[[VALUE2:.*]], %[[VALUE3:.*]]
// JVP: %[[SIGN:.*]] = stablehlo.sign %[[SELECT]]
// JVP: %[[DIVIDE:.*]] = stablehlo.divide %[[VALUE4:.*]], %[[SELECT]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[SIGN]], %[[DIVIDE]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[BESSEL_I1E]], %[[ADD]]
// JVP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[SELECT3]], %[[MULTIPLY]]
// JVP: %[[SELECT4:.*]] = stablehlo.select %[[COMPARE]], %[[VALUE5:.*]], %[[SUBTRACT]]
// JVP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[DX]], %[[SELECT4]]
// JVP: return %[[BESSEL_I1E]], %[[MULTIPLY1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[BESSEL_I1E:.*]] = chlo.bessel_i1e %[[X]]
// VJP: %[[ABS:.*]] = stablehlo.abs %[[X]]
// VJP: %[[COMPARE:.*]] = stablehlo.compare LE, %[[ABS]], %[[VALUE:.*]], FLOAT
// VJP: %[[SELECT:.*]] = stablehlo.select %[[COMPARE]], %[[VALUE]], %[[X]]
// VJP: %[[ABS1:.*]] = stablehlo.abs %[[SELECT]]
// VJP: %[[COMPARE1:.*]] = stablehlo.compare LE, %[[ABS1]], %[[VALUE1:.*]], FLOAT
// VJP: %[[SELECT1:.*]] = stablehlo.select %[[COMPARE1]], %[[ABS1]], %[[VALUE1]]
// VJP: %[[SELECT2:.*]] = stablehlo.select %[[COMPARE1]], %[[VALUE1]], %[[ABS1]]
// VJP: %[[SQRT:.*]] = stablehlo.sqrt %[[SELECT2]]
// VJP: %[[SELECT3:.*]] = stablehlo.select %[[COMPARE1]], %[[VALUE2:.*]], %[[VALUE3:.*]]
// VJP: %[[SIGN:.*]] = stablehlo.sign %[[SELECT]]
// VJP: %[[DIVIDE:.*]] = stablehlo.divide %[[VALUE4:.*]], %[[SELECT]]
// VJP: %[[ADD:.*]] = stablehlo.add %[[SIGN]], %[[DIVIDE]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[BESSEL_I1E]], %[[ADD]]
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[SELECT3]], %[[MULTIPLY]]
// VJP: %[[SELECT4:.*]] = stablehlo.select %[[COMPARE]], %[[VALUE5:.*]], %[[SUBTRACT]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[CT]], %[[SELECT4]]
// VJP: return %[[BESSEL_I1E]], %[[MULTIPLY1]]
