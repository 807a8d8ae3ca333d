// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %p = stablehlo.compare LT, %x, %y : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xi1>
  %0 = stablehlo.convert %p : (tensor<4xi1>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[COMPARE:.*]] = stablehlo.compare LT, %[[X]], %[[Y]]
// JVP: %[[CONVERT:.*]] = stablehlo.convert %[[COMPARE]]
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: return %[[CONVERT]], %[[C]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[COMPARE:.*]] = stablehlo.compare LT, %[[X]], %[[Y]]
// VJP: %[[CONVERT:.*]] = stablehlo.convert %[[COMPARE]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: return %[[CONVERT]], %[[C]], %[[C]]
