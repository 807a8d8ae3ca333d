// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2xf64>, %y: tensor<3xf64>) -> tensor<3xf64> {
  %0 = stablehlo.tuple %x, %y : tuple<tensor<2xf64>, tensor<3xf64>>
  %1 = stablehlo.get_tuple_element %0[1] : (tuple<tensor<2xf64>, tensor<3xf64>>) -> tensor<3xf64>
  return %1 : tensor<3xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DY:.*]]: {{.*}})
// JVP: %[[TUPLE:.*]] = stablehlo.tuple %[[X]], %[[Y]]
// JVP: %[[TUPLE1:.*]] = stablehlo.tuple %[[DX]], %[[DY]]
// JVP: %[[GET_TUPLE_ELEMENT:.*]] = stablehlo.get_tuple_element %[[TUPLE]][1]
// JVP: %[[GET_TUPLE_ELEMENT1:.*]] = stablehlo.get_tuple_element %[[TUPLE1]][1]
// JVP: return %[[GET_TUPLE_ELEMENT]], %[[GET_TUPLE_ELEMENT1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[Y:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[TUPLE:.*]] = stablehlo.tuple %[[X]], %[[Y]]
// VJP: %[[GET_TUPLE_ELEMENT:.*]] = stablehlo.get_tuple_element %[[TUPLE]][1]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: return %[[GET_TUPLE_ELEMENT]], %[[C]], %[[CT]]
