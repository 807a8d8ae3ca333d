// An annotation is put on tangents and cotangents too.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"}
    : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[CUSTOM_CALL:.*]] = stablehlo.custom_call @Sharding(%[[X]])
// JVP-SAME: mhlo.sharding =
// JVP: %[[CUSTOM_CALL_2:.*]] = stablehlo.custom_call @Sharding(%[[DX]])
// JVP-SAME: mhlo.sharding =
// JVP: return %[[CUSTOM_CALL]], %[[CUSTOM_CALL_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[CUSTOM_CALL:.*]] = stablehlo.custom_call @Sharding(%[[X]])
// VJP-SAME: mhlo.sharding =
// VJP: %[[CUSTOM_CALL_2:.*]] = stablehlo.custom_call @Sharding(%[[CT]])
// VJP-SAME: mhlo.sharding =
// VJP: return %[[CUSTOM_CALL]], %[[CUSTOM_CALL_2]]
