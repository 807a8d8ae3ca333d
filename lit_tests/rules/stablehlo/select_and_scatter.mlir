// Linear in the source; what is selected does not change.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>, %source: tensor<4xf64>) -> tensor<5xf64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = "stablehlo.select_and_scatter"(%x, %source, %zero) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.compare GE, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }, {
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %s = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %s : tensor<f64>
  }) {window_dimensions = array<i64: 2>}
    : (tensor<5xf64>, tensor<4xf64>, tensor<f64>) -> tensor<5xf64>
  return %0 : tensor<5xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[SOURCE:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<5xf64>, %[[DSOURCE:.*]]: tensor<4xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[SELECT_AND_SCATTER:.*]] = "stablehlo.select_and_scatter"(%[[X]], %[[SOURCE]], %[[C]])
// JVP: %[[C_2:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[SELECT_AND_SCATTER_2:.*]] = "stablehlo.select_and_scatter"(%[[X]], %[[DSOURCE]], %[[C_2]])
// JVP: return %[[SELECT_AND_SCATTER]], %[[SELECT_AND_SCATTER_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[SOURCE:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<5xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT_AND_SCATTER:.*]] = "stablehlo.select_and_scatter"(%[[X]], %[[SOURCE]], %[[C]])
// VJP: %[[IOTA:.*]] = stablehlo.iota dim = 0
// VJP: %[[C_2:.*]] = stablehlo.constant dense<0xFFF0000000000000>
// VJP: %[[C_3:.*]] = stablehlo.constant dense<5>
// VJP: %[[REDUCE_WINDOW:.*]]:2 = "stablehlo.reduce_window"(%[[X]], %[[IOTA]], %[[C_2]], %[[C_3]])
// VJP: %[[GATHER:.*]] = "stablehlo.gather"(%[[CT]], %[[REDUCE_WINDOW]]#1)
// VJP: %[[C_4:.*]] = stablehlo.constant dense<5>
// VJP: %[[IS:.*]] = stablehlo.compare LT, %[[REDUCE_WINDOW]]#1, %[[C_4]], SIGNED
// VJP: %[[C_5:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT:.*]] = stablehlo.select %[[IS]], %[[GATHER]], %[[C_5]]
// VJP: %[[C_6:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: return %[[SELECT_AND_SCATTER]], %[[C_6]], %[[SELECT]]
