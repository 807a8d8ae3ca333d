// Written out in arithmetic.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4x3xf64>, %scale: tensor<3xf64>, %offset: tensor<3xf64>, %mean: tensor<3xf64>, %variance: tensor<3xf64>) -> (tensor<4x3xf64>) {
  %r = "stablehlo.batch_norm_inference"(%x, %scale, %offset, %mean, %variance) {epsilon = 0.125 : f32, feature_index = 1 : i64}
    : (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x3xf64>)
  return %r : tensor<4x3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[SCALE:.*]]: tensor<3xf64>, %[[OFFSET:.*]]: tensor<3xf64>, %[[MEAN:.*]]: tensor<3xf64>, %[[VARIANCE:.*]]: tensor<3xf64>, %[[DX:.*]]: tensor<4x3xf64>, %[[DSCALE:.*]]: tensor<3xf64>, %[[DOFFSET:.*]]: tensor<3xf64>, %[[DMEAN:.*]]: tensor<3xf64>, %[[DVARIANCE:.*]]: tensor<3xf64>)
// JVP: %[[BATCH_NORM_INFERENCE:.*]] = "stablehlo.batch_norm_inference"(%[[X]], %[[SCALE]], %[[OFFSET]], %[[MEAN]], %[[VARIANCE]])
// JVP: %[[RSQRT:.*]] = stablehlo.rsqrt %{{.*}}
// JVP: return %[[BATCH_NORM_INFERENCE]], %{{.*}}

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[SCALE:.*]]: tensor<3xf64>, %[[OFFSET:.*]]: tensor<3xf64>, %[[MEAN:.*]]: tensor<3xf64>, %[[VARIANCE:.*]]: tensor<3xf64>, %[[CT:.*]]: tensor<4x3xf64>)
// VJP: %[[BATCH_NORM_INFERENCE:.*]] = "stablehlo.batch_norm_inference"(%[[X]], %[[SCALE]], %[[OFFSET]], %[[MEAN]], %[[VARIANCE]])
// VJP: %[[C:.*]] = stablehlo.constant dense<1.250000e-01>
// VJP: %[[ADD:.*]] = stablehlo.add %[[VARIANCE]], %[[C]]
// VJP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[ADD]]
// VJP: %[[MULTIPLY:.*]] = stablehlo.multiply %[[RSQRT]], %[[SCALE]]
// VJP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[MULTIPLY]], dims = [1]
// VJP: %[[BROADCAST_IN_DIM_2:.*]] = stablehlo.broadcast_in_dim %[[MEAN]], dims = [1]
// VJP: %[[SUBTRACT:.*]] = stablehlo.subtract %[[X]], %[[BROADCAST_IN_DIM_2]]
// VJP: %[[C_2:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[CT]] init: %[[C_2]]) applies stablehlo.add across dimensions = [0]
// VJP: %[[MULTIPLY_3:.*]] = stablehlo.multiply %[[CT]], %[[BROADCAST_IN_DIM]]
// VJP: %[[MULTIPLY_4:.*]] = stablehlo.multiply %[[SUBTRACT]], %[[CT]]
// VJP: %[[NEGATE:.*]] = stablehlo.negate %[[MULTIPLY_3]]
// VJP: %[[REDUCE_2:.*]] = stablehlo.reduce(%[[NEGATE]] init: %[[C_2]]) applies stablehlo.add across dimensions = [0]
// VJP: %[[REDUCE_3:.*]] = stablehlo.reduce(%[[MULTIPLY_4]] init: %[[C_2]]) applies stablehlo.add across dimensions = [0]
// VJP: %[[MULTIPLY_5:.*]] = stablehlo.multiply %[[REDUCE_3]], %[[SCALE]]
// VJP: %[[MULTIPLY_6:.*]] = stablehlo.multiply %[[RSQRT]], %[[REDUCE_3]]
// VJP: %[[C_3:.*]] = stablehlo.constant dense<-5.000000e-01>
// VJP: %[[ABS:.*]] = stablehlo.abs %[[RSQRT]]
// VJP: %[[HALF:.*]] = stablehlo.multiply %[[C_3]], %[[ABS]]
// VJP: %[[SQUARE:.*]] = stablehlo.multiply %[[RSQRT]], %[[RSQRT]]
// VJP: %[[MULTIPLY_7:.*]] = stablehlo.multiply %[[HALF]], %[[SQUARE]]
// VJP: %[[MULTIPLY_8:.*]] = stablehlo.multiply %[[MULTIPLY_5]], %[[MULTIPLY_7]]
// VJP: return %[[BATCH_NORM_INFERENCE]], %[[MULTIPLY_3]], %[[MULTIPLY_6]], %[[REDUCE]], %[[REDUCE_2]], %[[MULTIPLY_8]]
