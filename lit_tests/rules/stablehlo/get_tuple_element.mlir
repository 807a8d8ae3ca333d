// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<2xf64>, %n: tensor<i32>) -> (tensor<2xf64>, tensor<i32>) {
  %0 = stablehlo.tuple %x, %n : tuple<tensor<2xf64>, tensor<i32>>
  %1 = stablehlo.get_tuple_element %0[0] : (tuple<tensor<2xf64>, tensor<i32>>) -> tensor<2xf64>
  %2 = stablehlo.get_tuple_element %0[1] : (tuple<tensor<2xf64>, tensor<i32>>) -> tensor<i32>
  return %1, %2 : tensor<2xf64>, tensor<i32>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: {{.*}}, %[[N:.*]]: {{.*}}, %[[DX:.*]]: {{.*}})
// JVP: %[[TUPLE:.*]] = stablehlo.tuple %[[X]], %[[N]]
// JVP: %[[TUPLE1:.*]] = stablehlo.tuple %[[DX]], %[[N]]
// JVP: %[[GET_TUPLE_ELEMENT:.*]] = stablehlo.get_tuple_element %[[TUPLE]][0]
// JVP: %[[GET_TUPLE_ELEMENT1:.*]] = stablehlo.get_tuple_element %[[TUPLE1]][0]
// JVP: %[[GET_TUPLE_ELEMENT2:.*]] = stablehlo.get_tuple_element %[[TUPLE]][1]
// JVP: return %[[GET_TUPLE_ELEMENT]], %[[GET_TUPLE_ELEMENT2]], %[[GET_TUPLE_ELEMENT1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: {{.*}}, %[[N:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[TUPLE:.*]] = stablehlo.tuple %[[X]], %[[N]]
// VJP: %[[GET_TUPLE_ELEMENT:.*]] = stablehlo.get_tuple_element %[[TUPLE]][0]
// VJP: %[[GET_TUPLE_ELEMENT1:.*]] = stablehlo.get_tuple_element %[[TUPLE]][1]
// VJP: return %[[GET_TUPLE_ELEMENT]], %[[GET_TUPLE_ELEMENT1]], %[[CT]]
