"""What is read off a region: sharding constraints in it only say where values lie."""

from __future__ import annotations

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.rules.body_patterns import applied

CONSTRAINED = "sdy.sharding_constraint {0} <@mesh, []> : tensor<f32>"


@pytest.mark.parametrize(
    ("body", "name", "operands"),
    [
        ("stablehlo.return %b : tensor<f32>", None, [1]),
        (f"%0 = {CONSTRAINED.format('%b')} stablehlo.return %0 : tensor<f32>", None, [1]),
        (
            f"%0 = {CONSTRAINED.format('%b')} %1 = stablehlo.add %a, %0 : tensor<f32> "
            f"%2 = {CONSTRAINED.format('%1')} stablehlo.return %2 : tensor<f32>",
            "stablehlo.add",
            [0, 1],
        ),
    ],
    ids=["handed on", "handed on with a constraint", "applied between constraints"],
)
def test_constraints_do_not_count(body, name, operands):
    module = ir.Module.parse(
        f"""sdy.mesh @mesh = <["i"=2]>
        func.func @main(%x: tensor<4xf32>, %init: tensor<f32>) -> tensor<f32> {{
          %r = "stablehlo.reduce"(%x, %init) <{{dimensions = array<i64: 0>}}> ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              {body}
          }}) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
          return %r : tensor<f32>
        }}""",
        _jax.context(),
    )
    function = module.body.operations[1]
    block = function.regions[0].blocks[0].operations[0].regions[0].blocks[0]
    found = applied(block)
    assert found is not None
    assert (found.op and found.op.name) == name
    assert found.operands == [block.arguments[i] for i in operands]
