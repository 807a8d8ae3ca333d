// What the backward body needs and cannot take from the operands, the forward body returns: a row
// from each device. Operands are handed on as they are; the product is not computed again.
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s

sdy.mesh @mesh = <["i"=2, "j"=3]>
func.func @f(%x: tensor<4x3xf64>, %w: tensor<3x3xf64>) -> tensor<4x3xf64> {
  %0 = sdy.manual_computation(%x, %w) in_shardings=[<@mesh, [{"i"}, {}]>, <@mesh, [{}, {}]>]
      out_shardings=[<@mesh, [{"i"}, {}]>] manual_axes={"i"} (%a: tensor<2x3xf64>, %b: tensor<3x3xf64>) {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x3xf64>, tensor<3x3xf64>) -> tensor<2x3xf64>
    %2 = stablehlo.sine %1 : tensor<2x3xf64>
    sdy.return %2 : tensor<2x3xf64>
  } : (tensor<4x3xf64>, tensor<3x3xf64>) -> tensor<4x3xf64>
  return %0 : tensor<4x3xf64>
}

// CHECK-LABEL: func.func @f
// CHECK-SAME: (%[[X:.*]]: tensor<4x3xf64>, %[[W:.*]]: tensor<3x3xf64>, %[[CT:.*]]: tensor<4x3xf64>)
// CHECK: %[[BOTH:.*]]:2 = sdy.manual_computation(%[[X]], %[[W]])
// CHECK-SAME: out_shardings=[<@mesh, [{"i"}, {}]>, <@mesh, [{"i"}, {?}, {?}]>] manual_axes={"i"}
// CHECK: %[[DOT:.*]] = stablehlo.dot_general
// CHECK: %[[ROW:.*]] = stablehlo.reshape %[[DOT]] : (tensor<2x3xf64>) -> tensor<1x2x3xf64>
// CHECK: sdy.return %{{.*}}, %[[ROW]]
// CHECK: -> (tensor<4x3xf64>, tensor<2x2x3xf64>)
// CHECK: %[[CTS:.*]]:2 = sdy.manual_computation(%[[CT]],
// CHECK-SAME: %[[BOTH]]#1) in_shardings=
// CHECK-SAME: <@mesh, [{"i"}, {?}, {?}]>]
// CHECK: stablehlo.cosine
// CHECK: return %[[BOTH]]#0, %[[CTS]]#0, %[[CTS]]#1
