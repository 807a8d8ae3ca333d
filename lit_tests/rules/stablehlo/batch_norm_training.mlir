// Written out in arithmetic.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4x3xf64>, %scale: tensor<3xf64>, %offset: tensor<3xf64>) -> (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>) {
  %r:3 = "stablehlo.batch_norm_training"(%x, %scale, %offset) {epsilon = 0.125 : f32, feature_index = 1 : i64}
    : (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>)
  return %r#0, %r#1, %r#2 : tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[SCALE:.*]]: tensor<3xf64>, %[[OFFSET:.*]]: tensor<3xf64>, %[[DX:.*]]: tensor<4x3xf64>, %[[DSCALE:.*]]: tensor<3xf64>, %[[DOFFSET:.*]]: tensor<3xf64>)
// JVP: %output, %batch_mean, %batch_var = "stablehlo.batch_norm_training"(%[[X]], %[[SCALE]], %[[OFFSET]])
// JVP: %[[REDUCE:.*]] = stablehlo.reduce(%[[X]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: %[[REDUCE_2:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: %[[RSQRT:.*]] = stablehlo.rsqrt %{{.*}}
// JVP: %[[REDUCE_3:.*]] = stablehlo.reduce(%[[DX]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: %[[REDUCE_4:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: return %output, %batch_mean, %batch_var, %{{.*}}, %{{.*}}, %{{.*}}

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[SCALE:.*]]: tensor<3xf64>, %[[OFFSET:.*]]: tensor<3xf64>, %[[CT0:.*]]: tensor<4x3xf64>, %[[CT1:.*]]: tensor<3xf64>, %[[CT2:.*]]: tensor<3xf64>)
// VJP: %output, %batch_mean, %batch_var = "stablehlo.batch_norm_training"(%[[X]], %[[SCALE]], %[[OFFSET]])
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[X]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_2:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[RSQRT:.*]] = stablehlo.rsqrt %{{.*}}
// VJP: %[[REDUCE_3:.*]] = stablehlo.reduce(%[[CT0]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_4:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_5:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_6:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: return %output, %batch_mean, %batch_var, %{{.*}}, %{{.*}}, %[[REDUCE_3]]
