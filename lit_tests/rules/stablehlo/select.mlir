// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%p: tensor<4xi1>, %x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.select %p, %x, %y : tensor<4xi1>, tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[P:.*]]: {{.*}}, %[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[SELECT:.*]] = stablehlo.select %[[P]], %[[X]], %[[Y]]
// JVP-NEXT: %[[SELECT1:.*]] = stablehlo.select %[[P]], %[[DX]], %[[DY]]
// JVP-NEXT: return %[[SELECT]], %[[SELECT1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[P:.*]]: {{.*}}, %[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[SELECT:.*]] = stablehlo.select %[[P]], %[[X]], %[[Y]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[SELECT1:.*]] = stablehlo.select %[[P]], %[[CT]], %[[C]]
// VJP: %[[SELECT2:.*]] = stablehlo.select %[[P]], %[[C]], %[[CT]]
// VJP: return %[[SELECT]], %[[SELECT1]], %[[SELECT2]]
