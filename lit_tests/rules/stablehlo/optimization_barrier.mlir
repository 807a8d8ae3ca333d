// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2xf64>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<2xf64>, tensor<i32>, tensor<f64>) {
  %0:3 = stablehlo.optimization_barrier %x, %n, %y : tensor<2xf64>, tensor<i32>, tensor<f64>
  return %0#0, %0#1, %0#2 : tensor<2xf64>, tensor<i32>, tensor<f64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[N:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[OPTIMIZATION_BARRIER:.*]]:3 = stablehlo.optimization_barrier %[[X]], %[[N]], %[[Y]]
// JVP: %[[OPTIMIZATION_BARRIER1:.*]]:2 = stablehlo.optimization_barrier %[[DX]], %[[DY]]
// JVP: return %[[OPTIMIZATION_BARRIER]]#0, %[[OPTIMIZATION_BARRIER]]#1, %[[OPTIMIZATION_BARRIER]]#2, %[[OPTIMIZATION_BARRIER1]]#0, %[[OPTIMIZATION_BARRIER1]]#1

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[N:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT0:.*]]: {{.*}}, %[[CT1:.*]]: {{.*}})
// VJP: %[[OPTIMIZATION_BARRIER:.*]]:3 = stablehlo.optimization_barrier %[[X]], %[[N]], %[[Y]]
// VJP: %[[OPTIMIZATION_BARRIER1:.*]]:2 = stablehlo.optimization_barrier %[[CT0]], %[[CT1]]
// VJP: return %[[OPTIMIZATION_BARRIER]]#0, %[[OPTIMIZATION_BARRIER]]#1, %[[OPTIMIZATION_BARRIER]]#2, %[[OPTIMIZATION_BARRIER1]]#0, %[[OPTIMIZATION_BARRIER1]]#1
