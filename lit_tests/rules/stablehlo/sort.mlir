// Positions are sorted along; tangents follow them, cotangents go back.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x5xf64>) -> tensor<2x5xf64> {
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %less = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<2x5xf64>) -> tensor<2x5xf64>
  return %0 : tensor<2x5xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<2x5xf64>, %[[DX:.*]]: tensor<2x5xf64>)
// JVP: %[[IOTA:.*]] = stablehlo.iota dim = 1
// JVP: %[[SORT:.*]]:2 = "stablehlo.sort"(%[[X]], %[[IOTA]])
// JVP: %[[RESHAPE:.*]] = stablehlo.reshape %[[SORT]]#1
// JVP: %[[GATHER:.*]] = "stablehlo.gather"(%[[DX]], %[[RESHAPE]])
// JVP: return %[[SORT]]#0, %[[GATHER]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<2x5xf64>, %[[CT:.*]]: tensor<2x5xf64>)
// VJP: %[[IOTA:.*]] = stablehlo.iota dim = 1
// VJP: %[[SORT:.*]]:2 = "stablehlo.sort"(%[[X]], %[[IOTA]])
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[RESHAPE:.*]] = stablehlo.reshape %[[SORT]]#1
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[C]], %[[RESHAPE]], %[[CT]])
// VJP: return %[[SORT]]#0, %[[SCATTER]]
