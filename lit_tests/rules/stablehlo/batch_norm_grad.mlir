// Written out in arithmetic.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4x3xf64>, %scale: tensor<3xf64>, %mean: tensor<3xf64>, %variance: tensor<3xf64>, %g: tensor<4x3xf64>) -> (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>) {
  %r:3 = "stablehlo.batch_norm_grad"(%x, %scale, %mean, %variance, %g) {epsilon = 0.125 : f32, feature_index = 1 : i64}
    : (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<4x3xf64>) -> (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>)
  return %r#0, %r#1, %r#2 : tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[SCALE:.*]]: tensor<3xf64>, %[[MEAN:.*]]: tensor<3xf64>, %[[VARIANCE:.*]]: tensor<3xf64>, %[[G:.*]]: tensor<4x3xf64>, %[[DX:.*]]: tensor<4x3xf64>, %[[DSCALE:.*]]: tensor<3xf64>, %[[DMEAN:.*]]: tensor<3xf64>, %[[DVARIANCE:.*]]: tensor<3xf64>, %[[DG:.*]]: tensor<4x3xf64>)
// JVP: %grad_operand, %grad_scale, %grad_offset = "stablehlo.batch_norm_grad"(%[[X]], %[[SCALE]], %[[MEAN]], %[[VARIANCE]], %[[G]])
// JVP: %[[RSQRT:.*]] = stablehlo.rsqrt %{{.*}}
// JVP: %[[REDUCE:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: %[[REDUCE_2:.*]] = stablehlo.reduce(%[[G]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: %[[REDUCE_3:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: %[[REDUCE_4:.*]] = stablehlo.reduce(%[[DG]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// JVP: return %grad_operand, %grad_scale, %grad_offset, %{{.*}}, %[[REDUCE_3]], %[[REDUCE_4]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[SCALE:.*]]: tensor<3xf64>, %[[MEAN:.*]]: tensor<3xf64>, %[[VARIANCE:.*]]: tensor<3xf64>, %[[G:.*]]: tensor<4x3xf64>, %[[CT0:.*]]: tensor<4x3xf64>, %[[CT1:.*]]: tensor<3xf64>, %[[CT2:.*]]: tensor<3xf64>)
// VJP: %grad_operand, %grad_scale, %grad_offset = "stablehlo.batch_norm_grad"(%[[X]], %[[SCALE]], %[[MEAN]], %[[VARIANCE]], %[[G]])
// VJP: %[[RSQRT:.*]] = stablehlo.rsqrt %{{.*}}
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_2:.*]] = stablehlo.reduce(%[[G]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_3:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_4:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_5:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_6:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_7:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add across dimensions = [0]
// VJP: return %grad_operand, %grad_scale, %grad_offset, %{{.*}}, %{{.*}}, %[[REDUCE_7]], %{{.*}}, %{{.*}}
