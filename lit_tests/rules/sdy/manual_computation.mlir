// A replicated result takes half of its cotangent to each device; parts of a replicated operand's
// are summed.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

sdy.mesh @mesh = <["i"=2]>
func.func @f(%x: tensor<4xf64>, %w: tensor<2xf64>) -> tensor<2xf64> {
  %0 = sdy.manual_computation(%x, %w) in_shardings=[<@mesh, [{"i"}]>, <@mesh, [{}]>]
      out_shardings=[<@mesh, [{}]>] manual_axes={"i"} (%a: tensor<2xf64>, %b: tensor<2xf64>) {
    %1 = stablehlo.multiply %a, %b : tensor<2xf64>
    sdy.return %1 : tensor<2xf64>
  } : (tensor<4xf64>, tensor<2xf64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[W:.*]]: tensor<2xf64>, %[[DX:.*]]: tensor<4xf64>, %[[DW:.*]]: tensor<2xf64>)
// JVP: %[[BOTH:.*]]:2 = sdy.manual_computation(%[[X]], %[[W]], %[[DX]], %[[DW]])
// JVP-SAME: in_shardings=[<@mesh, [{"i"}]>, <@mesh, [{}]>, <@mesh, [{"i"}]>, <@mesh, [{}]>]
// JVP-SAME: out_shardings=[<@mesh, [{}]>, <@mesh, [{}]>]
// JVP: sdy.return
// JVP: return %[[BOTH]]#0, %[[BOTH]]#1

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[W:.*]]: tensor<2xf64>, %[[CT:.*]]: tensor<2xf64>)
// VJP: %[[Y:.*]] = sdy.manual_computation(%[[X]], %[[W]])
// VJP: %[[CTS:.*]]:2 = sdy.manual_computation(%[[CT]], %[[X]], %[[W]])
// VJP-SAME: out_shardings=[<@mesh, [{"i"}]>, <@mesh, [{}]>]
// VJP: stablehlo.constant dense<5.000000e-01>
// VJP: "stablehlo.all_reduce"
// VJP: sdy.return
// VJP: return %[[Y]], %[[CTS]]#0, %[[CTS]]#1
