"""How often ops run, by the control flow around them."""

from __future__ import annotations

from pullback import _jax
from pullback._jax import ir
from pullback.ir import costs


def test_an_op_runs_as_often_as_the_body_that_it_is_in() -> None:
    """Of a sharded computation, each device runs the body once; of a loop, each iteration."""
    module = ir.Module.parse(
        """
        sdy.mesh @mesh = <["i"=2]>
        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{}]>]
              out_shardings=[<@mesh, [{}]>] manual_axes={"i"} (%a: tensor<4xf32>) {
            %zero = stablehlo.constant dense<0> : tensor<i32>
            %three = stablehlo.constant dense<3> : tensor<i32>
            %one = stablehlo.constant dense<1> : tensor<i32>
            %s = stablehlo.sine %a : tensor<4xf32>
            %r:2 = stablehlo.while(%i = %zero, %b = %s) : tensor<i32>, tensor<4xf32>
            cond {
              %p = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
              stablehlo.return %p : tensor<i1>
            } do {
              %j = stablehlo.add %i, %one : tensor<i32>
              %c = stablehlo.cosine %b : tensor<4xf32>
              stablehlo.return %j, %c : tensor<i32>, tensor<4xf32>
            }
            sdy.return %r#1 : tensor<4xf32>
          } : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }
        """,
        _jax.context(),
    )
    runs = {op.name: count for op, count in costs.runs(module)}
    assert [runs["stablehlo.sine"], runs["stablehlo.cosine"]] == [1, 3]
    moved = {op.name: costs.bytes_moved(op) for op, _ in costs.runs(module)}
    assert moved["sdy.manual_computation"] == 0
