// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2xf64>, %y: tensor<3xf64>) -> tensor<5xf64> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<2xf64>, tensor<3xf64>) -> tensor<5xf64>
  return %0 : tensor<5xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[CONCATENATE:.*]] = stablehlo.concatenate %[[X]], %[[Y]], dim = 0
// JVP: %[[CONCATENATE1:.*]] = stablehlo.concatenate %[[DX]], %[[DY]], dim = 0
// JVP: return %[[CONCATENATE]], %[[CONCATENATE1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[CONCATENATE:.*]] = stablehlo.concatenate %[[X]], %[[Y]], dim = 0
// VJP: %[[SLICE:.*]] = stablehlo.slice %[[CT]] [0:2]
// VJP: %[[SLICE1:.*]] = stablehlo.slice %[[CT]] [2:5]
// VJP: return %[[CONCATENATE]], %[[SLICE]], %[[SLICE1]]
