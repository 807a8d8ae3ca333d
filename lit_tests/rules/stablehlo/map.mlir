// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "stablehlo.map"(%x) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f64>):
    %1 = stablehlo.sine %a : tensor<f64>
    stablehlo.return %1 : tensor<f64>
  }) : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[MAP:.*]] = "stablehlo.map"(%[[X]]) <{dimensions = array<i64: 0>}> ({
// JVP: ^bb0(%[[ARG:.*]]: tensor<f64>):
// JVP: %[[SINE:.*]] = stablehlo.sine %[[ARG]]
// JVP: stablehlo.return %[[SINE]]
// JVP: })
// JVP: %[[SINE1:.*]] = stablehlo.sine %[[X]]
// JVP: %[[COSINE:.*]] = stablehlo.cosine %[[X]]
// JVP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[DX]], %[[COSINE]]
// JVP: return %[[MAP]], %[[MULTIPLY]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[SINE:.*]] = stablehlo.sine %[[X]]
// VJP: %[[COSINE:.*]] = stablehlo.cosine %[[X]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[CT]], %[[COSINE]]
// VJP: return %[[SINE]], %[[MULTIPLY]]
