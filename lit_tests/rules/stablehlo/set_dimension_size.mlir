// Cut to the same size; back, with zeros beyond it.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<5xf64>, %n: tensor<i32>) -> tensor<?xf64, #stablehlo.bounds<5>> {
  %0 = stablehlo.set_dimension_size %x, %n, dim = 0
    : (tensor<5xf64>, tensor<i32>) -> tensor<?xf64, #stablehlo.bounds<5>>
  return %0 : tensor<?xf64, #stablehlo.bounds<5>>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[N:.*]]: tensor<i32>, %[[DX:.*]]: tensor<5xf64>)
// JVP: %[[CUT:.*]] = stablehlo.set_dimension_size %[[X]], %[[N]], dim = 0
// JVP: %[[DCUT:.*]] = stablehlo.set_dimension_size %[[DX]], %[[N]], dim = 0
// JVP: return %[[CUT]], %[[DCUT]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[N:.*]]: tensor<i32>, %[[CT:.*]]: tensor<?xf64, #stablehlo.bounds<5>>)
// VJP: %[[CUT:.*]] = stablehlo.set_dimension_size %[[X]], %[[N]], dim = 0
// VJP: %[[FIVE:.*]] = stablehlo.constant dense<5> : tensor<i32>
// VJP: %[[WHOLE:.*]] = stablehlo.set_dimension_size %[[CT]], %[[FIVE]], dim = 0
// VJP-SAME: -> tensor<5xf64>
// VJP: %[[INDEX:.*]] = stablehlo.iota dim = 0 : tensor<5xi32>
// VJP: %[[SIZE:.*]] = stablehlo.broadcast_in_dim %[[N]], dims = []
// VJP: %[[INSIDE:.*]] = stablehlo.compare LT, %[[INDEX]], %[[SIZE]]
// VJP: %[[SELECT:.*]] = stablehlo.select %[[INSIDE]], %[[WHOLE]], %{{.*}}
// VJP: return %[[CUT]], %[[SELECT]]
