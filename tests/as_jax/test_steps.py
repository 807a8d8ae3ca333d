"""What a block computes, as a value."""

from __future__ import annotations

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.as_jax.steps import steps_of
from pullback.ir.regions import operations


def computed(*ops: str, result: str) -> object:
    text = "\n".join(f"{op} : tensor<f32>" for op in (*ops, f"return {result}"))
    function = f"func.func @main(%x: tensor<f32>) -> tensor<f32> {{ {text} }}"
    module = ir.Module.parse(function, _jax.context())
    return steps_of(operations(module.body)[0].regions[0].blocks[0])


SINE, COSINE = "%s = stablehlo.sine %x", "%c = stablehlo.cosine %x"
SUM, SWAPPED = "%r = stablehlo.subtract %s, %c", "%r = stablehlo.subtract %c, %s"


@pytest.mark.parametrize(
    ("ops", "same"),
    [((COSINE, SINE, SUM), True), ((SINE, COSINE, SWAPPED), False), ((COSINE, SINE), False)],
)
def test_the_order_of_ops_makes_no_difference(ops, same):
    wanted = computed(SINE, COSINE, SUM, result="%r")
    result = "%r" if len(ops) == 3 else "%s"
    assert (computed(*ops, result=result) == wanted) is same


def test_values_that_are_used_twice_take_no_more_time():
    """Nested operands would have doubled with each op: 2 ** 100 of them."""
    ops = ["%0 = stablehlo.add %x, %x"]
    ops += [f"%{i} = stablehlo.add %{i - 1}, %{i - 1}" for i in range(1, 100)]
    first, second = (computed(*ops, result="%99") for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
