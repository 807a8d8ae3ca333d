// A maximum is read where it stands, and written there by select_and_scatter.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>) -> tensor<4xf64> {
  %init = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
  %0 = "stablehlo.reduce_window"(%x, %init) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.maximum %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  }) {window_dimensions = array<i64: 2>}
    : (tensor<5xf64>, tensor<f64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[DX:.*]]: tensor<5xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<0xFFF0000000000000>
// JVP: %[[REDUCE_WINDOW:.*]] = "stablehlo.reduce_window"(%[[X]], %[[C]])
// JVP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// JVP: %[[C_2:.*]] = stablehlo.constant dense<0xFFF0000000000000>
// JVP: %[[C_3:.*]] = stablehlo.constant dense<5>
// JVP: %[[REDUCE_WINDOW_2:.*]]:2 = "stablehlo.reduce_window"(%[[X]], %[[IOTA]], %[[C_2]], %[[C_3]])
// JVP: %[[GATHER:.*]] = "stablehlo.gather"(%[[DX]], %[[REDUCE_WINDOW_2]]#1)
// JVP: %[[C_4:.*]] = stablehlo.constant dense<5>
// JVP: %[[IS:.*]] = stablehlo.compare LT, %[[REDUCE_WINDOW_2]]#1, %[[C_4]], SIGNED
// JVP: %[[C_5:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[SELECT:.*]] = stablehlo.select %[[IS]], %[[GATHER]], %[[C_5]]
// JVP: return %[[REDUCE_WINDOW]], %[[SELECT]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<0xFFF0000000000000>
// VJP: %[[REDUCE_WINDOW:.*]] = "stablehlo.reduce_window"(%[[X]], %[[C]])
// VJP: %[[C_2:.*]] = stablehlo.constant dense<0xFFF0000000000000>
// VJP: %[[PAD:.*]] = stablehlo.pad %[[X]], %[[C_2]], low = [0], high = [0], interior = [0]
// VJP: %[[C_3:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT_AND_SCATTER:.*]] = "stablehlo.select_and_scatter"(%[[PAD]], %[[CT]], %[[C_3]])
// VJP: %[[PAD_2:.*]] = stablehlo.pad %[[SELECT_AND_SCATTER]], %[[C_3]], low = [0], high = [0], interior = [0]
// VJP: %[[SLICE:.*]] = stablehlo.slice %[[PAD_2]] [0:5]
// VJP: return %[[REDUCE_WINDOW]], %[[SLICE]]
