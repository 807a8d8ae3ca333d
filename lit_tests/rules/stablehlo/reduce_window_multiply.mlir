// Other bodies are written out on whole arrays.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>) -> tensor<4xf64> {
  %init = stablehlo.constant dense<1.0> : tensor<f64>
  %0 = "stablehlo.reduce_window"(%x, %init) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.multiply %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  }) {window_dimensions = array<i64: 2>}
    : (tensor<5xf64>, tensor<f64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[DX:.*]]: tensor<5xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// JVP: %[[REDUCE_WINDOW:.*]] = "stablehlo.reduce_window"(%[[X]], %[[C]])
// JVP: %[[PAD:.*]] = stablehlo.pad %[[X]], %[[C]], low = [0], high = [0], interior = [0]
// JVP: %[[C_2:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[PAD_2:.*]] = stablehlo.pad %[[DX]], %[[C_2]], low = [0], high = [0], interior = [0]
// JVP: %[[SLICE:.*]] = stablehlo.slice %[[PAD]] [0:4]
// JVP: %[[SLICE_2:.*]] = stablehlo.slice %[[PAD_2]] [0:4]
// JVP: %[[SLICE_3:.*]] = stablehlo.slice %[[PAD]] [1:5]
// JVP: %[[SLICE_4:.*]] = stablehlo.slice %[[PAD_2]] [1:5]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[SLICE]], %[[SLICE_3]]
// JVP: %[[MULTIPLY_2:.*]] = stablehlo.multiply %[[SLICE_2]], %[[SLICE_3]]
// JVP: %[[MULTIPLY_3:.*]] = stablehlo.multiply %[[SLICE]], %[[SLICE_4]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[MULTIPLY_2]], %[[MULTIPLY_3]]
// JVP: %[[SLICE_5:.*]] = stablehlo.slice %[[MULTIPLY]] [0:4]
// JVP: %[[SLICE_6:.*]] = stablehlo.slice %[[ADD]] [0:4]
// JVP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[C]], dims = []
// JVP: %[[MULTIPLY_4:.*]] = stablehlo.multiply %[[BROADCAST_IN_DIM]], %[[SLICE_5]]
// JVP: %[[MULTIPLY_5:.*]] = stablehlo.multiply %[[BROADCAST_IN_DIM]], %[[SLICE_6]]
// JVP: return %[[REDUCE_WINDOW]], %[[MULTIPLY_5]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<1.000000e+00>
// VJP: %[[REDUCE_WINDOW:.*]] = "stablehlo.reduce_window"(%[[X]], %[[C]])
// VJP: %[[PAD:.*]] = stablehlo.pad %[[X]], %[[C]], low = [0], high = [0], interior = [0]
// VJP: %[[SLICE:.*]] = stablehlo.slice %[[PAD]] [0:4]
// VJP: %[[SLICE_2:.*]] = stablehlo.slice %[[PAD]] [1:5]
// VJP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[C]], dims = []
// VJP: %[[MULTIPLY_3:.*]] = stablehlo.multiply %[[BROADCAST_IN_DIM]], %[[CT]]
// VJP: %[[C_2:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[PAD_2:.*]] = stablehlo.pad %[[MULTIPLY_3]], %[[C_2]], low = [0], high = [0], interior = [0]
// VJP: %[[MULTIPLY_4:.*]] = stablehlo.multiply %[[PAD_2]], %[[SLICE_2]]
// VJP: %[[MULTIPLY_5:.*]] = stablehlo.multiply %[[SLICE]], %[[PAD_2]]
// VJP: %[[PAD_3:.*]] = stablehlo.pad %[[MULTIPLY_5]], %[[C_2]], low = [1], high = [0], interior = [0]
// VJP: %[[PAD_4:.*]] = stablehlo.pad %[[MULTIPLY_4]], %[[C_2]], low = [0], high = [1], interior = [0]
// VJP: %[[ADD:.*]] = stablehlo.add %[[PAD_3]], %[[PAD_4]]
// VJP: %[[PAD_5:.*]] = stablehlo.pad %[[ADD]], %[[C_2]], low = [0], high = [0], interior = [0]
// VJP: %[[SLICE_4:.*]] = stablehlo.slice %[[PAD_5]] [0:5]
// VJP: return %[[REDUCE_WINDOW]], %[[SLICE_4]]
