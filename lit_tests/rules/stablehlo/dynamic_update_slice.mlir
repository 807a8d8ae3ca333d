// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<7xf64>, %u: tensor<3xf64>, %i: tensor<i32>) -> tensor<7xf64> {
  %0 = stablehlo.dynamic_update_slice %x, %u, %i : (tensor<7xf64>, tensor<3xf64>, tensor<i32>) -> tensor<7xf64>
  return %0 : tensor<7xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[U:.*]]: {{.*}}, %[[I:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DU:.*]]: {{.*}})
// JVP: %[[DYNAMIC_UPDATE_SLICE:.*]] = stablehlo.dynamic_update_slice %[[X]], %[[U]], %[[I]]
// JVP: %[[DYNAMIC_UPDATE_SLICE1:.*]] = stablehlo.dynamic_update_slice %[[DX]], %[[DU]], %[[I]]
// JVP: return %[[DYNAMIC_UPDATE_SLICE]], %[[DYNAMIC_UPDATE_SLICE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[U:.*]]: {{.*}}, %[[I:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[DYNAMIC_UPDATE_SLICE:.*]] = stablehlo.dynamic_update_slice %[[X]], %[[U]], %[[I]]
// VJP: %[[DYNAMIC_SLICE:.*]] = stablehlo.dynamic_slice %[[CT]], %[[I]], sizes = [3]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[DYNAMIC_UPDATE_SLICE1:.*]] = stablehlo.dynamic_update_slice %[[CT]], %[[C]], %[[I]]
// VJP: return %[[DYNAMIC_UPDATE_SLICE]], %[[DYNAMIC_UPDATE_SLICE1]], %[[DYNAMIC_SLICE]]
