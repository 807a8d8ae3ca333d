// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<7xf64>, %i: tensor<i32>) -> tensor<3xf64> {
  %0 = stablehlo.dynamic_slice %x, %i, sizes = [3] : (tensor<7xf64>, tensor<i32>) -> tensor<3xf64>
  return %0 : tensor<3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[I:.*]]: {{.*}}, %[[DX:.*]]: {{.*}})
// JVP: %[[DYNAMIC_SLICE:.*]] = stablehlo.dynamic_slice %[[X]], %[[I]], sizes = [3]
// JVP: %[[DYNAMIC_SLICE1:.*]] = stablehlo.dynamic_slice %[[DX]], %[[I]], sizes = [3]
// JVP: return %[[DYNAMIC_SLICE]], %[[DYNAMIC_SLICE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[I:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[DYNAMIC_SLICE:.*]] = stablehlo.dynamic_slice %[[X]], %[[I]], sizes = [3]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[DYNAMIC_UPDATE_SLICE:.*]] = stablehlo.dynamic_update_slice %[[C]], %[[CT]], %[[I]]
// VJP: return %[[DYNAMIC_SLICE]], %[[DYNAMIC_UPDATE_SLICE]]
