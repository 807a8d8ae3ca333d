// Sums over windows are linear.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>) -> tensor<4xf64> {
  %init = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = "stablehlo.reduce_window"(%x, %init) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  }) {window_dimensions = array<i64: 2>}
    : (tensor<5xf64>, tensor<f64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[DX:.*]]: tensor<5xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[REDUCE_WINDOW:.*]] = "stablehlo.reduce_window"(%[[X]], %[[C]])
// JVP-SAME: window_dimensions = array<i64: 2>
// JVP: %[[C_2:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[REDUCE_WINDOW_2:.*]] = "stablehlo.reduce_window"(%[[DX]], %[[C_2]])
// JVP-SAME: window_dimensions = array<i64: 2>
// JVP: return %[[REDUCE_WINDOW]], %[[REDUCE_WINDOW_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[REDUCE_WINDOW:.*]] = "stablehlo.reduce_window"(%[[X]], %[[C]])
// VJP-SAME: window_dimensions = array<i64: 2>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[REDUCE_WINDOW_2:.*]] = "stablehlo.reduce_window"(%[[CT]], %[[C_2]])
// VJP-SAME: padding = dense<1>
// VJP-SAME: window_dimensions = array<i64: 2>
// VJP: return %[[REDUCE_WINDOW]], %[[REDUCE_WINDOW_2]]
