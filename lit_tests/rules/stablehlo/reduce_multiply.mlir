// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3xf64>) -> tensor<f64> {
  %one = stablehlo.constant dense<1.0> : tensor<f64>
  %0 = stablehlo.reduce(%x init: %one) applies stablehlo.multiply across dimensions = [0] : (tensor<3xf64>, tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[DX:.*]]: tensor<3xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[REDUCE:.*]] = stablehlo.reduce(%[[X]] init: %[[C]]) applies stablehlo.multiply across dimensions = [0]
// JVP: %[[CALL:.*]]:2 = call @reduce.jvp(%[[X]], %[[C]], %[[DX]])
// JVP: return %[[REDUCE]], %[[CALL]]#1

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[CT:.*]]: tensor<f64>)
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[VALUE:.*]], %[[VALUE1:.*]]
// VJP: %[[MULTIPLY1:.*]] = stablehlo.multiply %[[VALUE2:.*]], %[[VALUE3:.*]]
// VJP: %[[MULTIPLY2:.*]] = stablehlo.multiply %[[VALUE4:.*]], %[[VALUE5:.*]]
// VJP: %[[MULTIPLY3:.*]] = stablehlo.multiply %[[VALUE]], %[[VALUE1]]
// VJP: %[[MULTIPLY4:.*]] = stablehlo.multiply %[[VALUE4]], %[[CT]]
// VJP: %[[MULTIPLY5:.*]] = stablehlo.multiply %[[VALUE6:.*]], %[[VALUE7:.*]]
// VJP: %[[MULTIPLY6:.*]] = stablehlo.multiply %[[VALUE8:.*]], %[[VALUE6]]
// VJP: %[[PAD:.*]] = stablehlo.pad %[[MULTIPLY6]], %[[VALUE9:.*]], low = [1], high = [0], interior = [1]
// VJP: %[[PAD1:.*]] = stablehlo.pad %[[MULTIPLY5]], %[[VALUE9]], low = [0], high = [1], interior = [1]
// VJP: %[[ADD:.*]] = stablehlo.add %[[PAD]], %[[PAD1]]
// VJP: %[[MULTIPLY7:.*]] = stablehlo.multiply %[[VALUE11:.*]], %[[VALUE1]]
// VJP: %[[MULTIPLY8:.*]] = stablehlo.multiply %[[VALUE]], %[[VALUE11]]
// VJP: %[[PAD3:.*]] = stablehlo.pad %[[MULTIPLY8]], %[[VALUE9]], low = [1], high = [1], interior = [1]
// VJP: %[[PAD4:.*]] = stablehlo.pad %[[MULTIPLY7]], %[[VALUE9]], low = [0], high = [2], interior = [1]
// VJP: %[[ADD1:.*]] = stablehlo.add %[[PAD3]], %[[PAD4]]
// VJP: %[[SLICE:.*]] = stablehlo.slice %[[ADD1]] [2:3]
// VJP: %[[ADD2:.*]] = stablehlo.add %[[SLICE]], %[[VALUE10:.*]]
// VJP: %[[UPDATE:.*]] = stablehlo.dynamic_update_slice %[[ADD1]], %[[ADD2]]
// VJP: return %[[MULTIPLY2]], %[[UPDATE]]
