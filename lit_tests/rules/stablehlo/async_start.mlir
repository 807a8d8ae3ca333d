// Derivatives are computed at once, in place for a slice.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP
// RUN: pullback-opt %s -p "vjp{entry=f split=true}" | filecheck %s --check-prefix=SPLIT

func.func @f(%x: tensor<5xf64>, %i: tensor<i32>) -> tensor<2xf64> {
  %0 = "stablehlo.async_start"(%x, %i) ({
  ^bb0(%a: tensor<5xf64>, %k: tensor<i32>):
    %1 = stablehlo.dynamic_slice %a, %k, sizes = [2] : (tensor<5xf64>, tensor<i32>) -> tensor<2xf64>
    stablehlo.return %1 : tensor<2xf64>
  }) : (tensor<5xf64>, tensor<i32>) -> !stablehlo.future<tensor<2xf64>>
  %2 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<2xf64>>) -> tensor<2xf64>
  return %2 : tensor<2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[I:.*]]: tensor<i32>, %[[DX:.*]]: tensor<5xf64>)
// JVP: %[[FUTURE:.*]] = "stablehlo.async_start"(%[[X]], %[[I]])
// JVP: %[[DSLICE:.*]] = stablehlo.dynamic_slice %[[DX]], %[[I]], sizes = [2]
// JVP: %[[DONE:.*]] = "stablehlo.async_done"(%[[FUTURE]])
// JVP: return %[[DONE]], %[[DSLICE]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<5xf64>, %[[I:.*]]: tensor<i32>, %[[CT:.*]]: tensor<2xf64>)
// VJP: %[[FUTURE:.*]] = "stablehlo.async_start"(%[[X]], %[[I]])
// VJP: %[[DONE:.*]] = "stablehlo.async_done"(%[[FUTURE]])
// VJP: %[[UPDATE:.*]] = stablehlo.dynamic_update_slice %{{.*}}, %[[CT]], %[[I]]
// VJP: return %[[DONE]], %[[UPDATE]]

// SPLIT-LABEL: func.func public @f
// SPLIT-LABEL: func.func public @f.bwd
// SPLIT-SAME: (%[[I:.*]]: tensor<i32>, %[[CT:.*]]: tensor<2xf64>)
// SPLIT: %[[UPDATE:.*]] = stablehlo.dynamic_update_slice %{{.*}}, %[[CT]], %[[I]]
// SPLIT: return %[[UPDATE]]
