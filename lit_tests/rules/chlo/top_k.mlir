// The op itself says where its results come from.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>) -> (tensor<2xf64>, tensor<2xi32>) {
  %0:2 = chlo.top_k(%x, k = 2) : tensor<5xf64> -> (tensor<2xf64>, tensor<2xi32>)
  return %0#0, %0#1 : tensor<2xf64>, tensor<2xi32>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[DX:.*]]: tensor<5xf64>)
// JVP: %values, %indices = chlo.top_k(%[[X]], k = 2)
// JVP: %[[RESHAPE:.*]] = stablehlo.reshape %indices
// JVP: %[[GATHER:.*]] = "stablehlo.gather"(%[[DX]], %[[RESHAPE]])
// JVP: return %values, %indices, %[[GATHER]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[CT:.*]]: tensor<2xf64>)
// VJP: %values, %indices = chlo.top_k(%[[X]], k = 2)
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[RESHAPE:.*]] = stablehlo.reshape %indices
// VJP: %[[SCATTER:.*]] = "stablehlo.scatter"(%[[C]], %[[RESHAPE]], %[[CT]])
// VJP: return %values, %indices, %[[SCATTER]]
