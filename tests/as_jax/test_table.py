"""Ops of StableHLO and CHLO, those too that JAX never writes, as functions of JAX."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.as_jax.table import OPS
from pullback.autodiff import registry
from pullback.errors import MissingRuleError, NoJaxCounterpartError
from tests.rules import harness

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("float64")]

CASES = [c for c in harness.all_cases() if isinstance(c.function, str) and c.reference is not None]
FROM_JAX = list(
    {c.op: c for c in harness.all_cases()[::-1] if callable(c.function) and c.against_jax}.values()
)
"""The first record of each op that is a function of JAX."""

REFUSED = {
    "stablehlo.async_done",
    "stablehlo.async_start",
    "stablehlo.set_dimension_size",
}
"""Ops that JAX has no counterpart for."""

PARTS = (
    "with indices that have no components",
    "with a body that is no sum, product, minimum, maximum or replacement",
    "with bodies other than GE or LE, and a sum",
)
"""Forms of other ops that JAX has no counterpart for."""

NO_TANGENTS = {
    "chlo.broadcast_next_after",
    "chlo.broadcast_zeta",
    "stablehlo.reduce_window-maximum_from",
    "stablehlo.reduce_window-sum_from",
}
"""Records of which JAX itself has no forward mode."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_and_tangents_are_those_of_the_reference(case):
    rng = np.random.default_rng(0)
    args = harness.sample(case, rng)
    program = pb.load(case.function.encode())
    try:
        function = program.as_jax()
    except NoJaxCounterpartError as error:
        if case.op in REFUSED or error.message.endswith(PARTS):
            return
        raise
    moving = [i for i, x in enumerate(args) if harness.inexact(x)]

    def of(f, *values):
        full = list(args)
        for i, v in zip(moving, values):
            full[i] = v
        return [x for x in jax.tree.leaves(f(*full)) if harness.inexact(x)]

    primals = [args[i] for i in moving]
    pairs = zip(of(function, *primals), of(case.reference, *primals), strict=True)
    if case.against_jax and case.name not in NO_TANGENTS:
        tangents = [harness.direction(x, rng) for x in primals]
        found, expected = (
            jax.jit(lambda p, t, f=f: jax.jvp(lambda *v: of(f, *v), p, t)[1])(primals, tangents)
            for f in (function, case.reference)
        )
        pairs = (*pairs, *zip(found, expected, strict=True))
    for x, y in pairs:
        np.testing.assert_allclose(x, y, case.tolerance, case.tolerance)


@pytest.mark.parametrize("case", FROM_JAX, ids=lambda case: case.op)
def test_an_op_that_jax_writes_has_the_derivative_of_the_function(case):
    rng = np.random.default_rng(0)
    args = harness.sample(case, rng)
    function = pb.trace(case.function)(*args).as_jax()
    moving = [i for i, x in enumerate(args) if harness.inexact(x)]
    primals = [args[i] for i in moving]
    tangents = [harness.direction(x, rng) for x in primals]

    def derivative(f, primals, tangents):
        def restricted(*values):
            found = dict(zip(moving, values, strict=True))
            return f(*(found.get(i, x) for i, x in enumerate(args)))

        return jax.jvp(restricted, primals, tangents)

    found, wanted = (
        jax.tree.leaves(jax.jit(functools.partial(derivative, f))(primals, tangents))
        for f in (function, case.function)
    )
    for x, y in zip(found, wanted, strict=True):
        if y.dtype != jax.dtypes.float0:
            np.testing.assert_allclose(x, y, case.tolerance, case.tolerance)


BITS = """
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %b = stablehlo.bitcast_convert %x : (tensor<3xf32>) -> tensor<3xi32>
  %c = stablehlo.constant dense<8388608> : tensor<3xi32>
  %d = stablehlo.add %b, %c : tensor<3xi32>
  %y = stablehlo.bitcast_convert %d : (tensor<3xi32>) -> tensor<3xf32>
  %z = stablehlo.multiply %y, %x : tensor<3xf32>
  return %z : tensor<3xf32>
}"""
RANDOM = """
func.func @main(%x: tensor<f32>) -> tensor<3xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %shape = stablehlo.constant dense<3> : tensor<1xi64>
  %y = stablehlo.rng %x, %one, %shape, distribution = UNIFORM
    : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}"""
OPAQUE = """
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = stablehlo.custom_call @acme_gelu(%x) {api_version = 4 : i32}
    : (tensor<3xf32>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}"""


@pytest.mark.parametrize(
    ("text", "shape", "op"),
    [
        (BITS, (3,), "`stablehlo.bitcast_convert`"),
        (RANDOM, (), "`stablehlo.rng`"),
        (OPAQUE, (3,), "`stablehlo.custom_call` @acme_gelu"),
    ],
    ids=["bits", "random", "opaque"],
)
def test_a_derivative_that_jax_gives_zero_or_nothing_for_is_the_error_of_the_program(
    text, shape, op
):
    program = pb.load(text.encode(), allow_custom_calls={"acme_gelu"})
    function, x = program.as_jax(), jnp.ones(shape, jnp.float32)

    def loss(x):
        return function(x).sum()

    with pytest.raises(MissingRuleError) as wanted:
        program.jvp()
    assert f"no derivative rule for {op}" in str(wanted.value)
    for derivative in (
        jax.grad(loss),
        jax.jit(jax.grad(loss)),
        lambda x: jax.vmap(jax.grad(loss))(x[None]),
        jax.grad(jax.checkpoint(loss)),
        lambda x: jax.jvp(loss, (x,), (x,)),
    ):
        with pytest.raises(MissingRuleError) as found:
            derivative(x)
        assert found.value.message == wanted.value.message
        assert found.value.where == wanted.value.where


def test_each_op_has_a_rule_or_no_derivative_or_is_refused_by_name():
    registry.load_all()
    known = registry.RULES.keys() | registry.NONDIFFERENTIABLE.keys()
    assert OPS.keys() - known == {"stablehlo.bitcast_convert", "stablehlo.rng"}


def test_values_of_bits_are_those_of_the_module():
    x = jnp.array([1.0, 2.0, 3.0], jnp.float32)
    np.testing.assert_array_equal(pb.load(BITS.encode()).as_jax()(x), 2 * x * x)
