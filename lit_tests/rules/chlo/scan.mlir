// A loop over the slices; in reverse mode, a second one back, which carries the cotangent.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<3xf64>, %c: tensor<f64>) -> tensor<f64> {
  %0:2 = chlo.scan(%x) inits(%c) dimension = 0 {
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %1 = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %1, %1 : tensor<f64>, tensor<f64>
  } : (tensor<3xf64>, tensor<f64>) -> (tensor<3xf64>, tensor<f64>)
  return %0#1 : tensor<f64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[C:.*]]: tensor<f64>, %[[DX:.*]]: tensor<3xf64>, %[[DC:.*]]: tensor<f64>)
// JVP: chlo.scan(%[[X]]) inits (%[[C]])
// JVP: %[[LOOP:.*]]:{{.*}} = stablehlo.while(%[[I:iterArg]] = %{{.*}}, %[[CARRY:.*]] = %[[C]], {{.*}} = %[[DC]],
// JVP: stablehlo.dynamic_slice %[[X]], %[[I]]
// JVP: stablehlo.dynamic_slice %[[DX]], %[[I]]
// JVP: return %{{.*}}, %[[LOOP]]#

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<3xf64>, %[[C:.*]]: tensor<f64>, %[[CT:.*]]: tensor<f64>)
// VJP: chlo.scan(%[[X]]) inits (%[[C]])
// VJP: %[[BACK:.*]]:3 = stablehlo.while(%{{.*}} = %{{.*}}, %[[CARRY:.*]] = %[[CT]], %[[TOTAL:.*]] = %{{.*}})
// VJP: %[[SLOT:.*]] = stablehlo.reshape %[[CARRY]]
// VJP: stablehlo.dynamic_update_slice %[[TOTAL]],
// VJP: return %{{.*}}, %[[BACK]]#2, %[[BACK]]#1
