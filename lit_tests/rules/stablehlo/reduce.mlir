// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2x3xf64>, %init: tensor<f64>) -> tensor<2xf64> {
  %0 = stablehlo.reduce(%x init: %init) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf64>, tensor<f64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[INIT:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DINIT:.*]]: {{.*}})
// JVP: %[[REDUCE:.*]] = stablehlo.reduce(%[[X]] init: %[[INIT]]) applies stablehlo.add across dimensions = [1]
// JVP: %[[REDUCE1:.*]] = stablehlo.reduce(%[[DX]] init: %[[DINIT]]) applies stablehlo.add across dimensions = [1]
// JVP: return %[[REDUCE]], %[[REDUCE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[INIT:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[X]] init: %[[INIT]]) applies stablehlo.add across dimensions = [1]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[CT]], dims = [0]
// VJP: %[[REDUCE1:.*]] = stablehlo.reduce(%[[CT]] init: %[[C]]) applies stablehlo.add across dimensions = [0]
// VJP: return %[[REDUCE]], %[[BROADCAST_IN_DIM]], %[[REDUCE1]]
