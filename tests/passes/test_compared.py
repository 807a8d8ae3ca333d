"""What a rule compares to the last bit is stored, and not computed again behind a forward function.

XLA may make another number of it there: then no element of a maximum is the maximum.
"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb
from pullback.passes.vjp import VJP

pytestmark = pytest.mark.usefixtures("float64")

X = np.linspace(-1.0, 1.0, 6)
TABLE = r"stablehlo.subtract .*tensor<(6x8|48)xf64>"


def table(x):
    """An array that is much larger than what it is computed from."""
    return x[:, None] - jnp.arange(8.0)


def in_a_loop(x):
    def step(h, i):
        return jnp.sin(h * jnp.max(table(x) * 0.1)), None

    return jax.lax.scan(step, 0.5, jnp.arange(3))[0]


def captured_by_a_loop(x):
    z = table(x)
    return jax.lax.scan(lambda h, _: (jnp.sin(h) * jnp.max(z) ** 2, None), 0.5, None, length=3)[0]


def in_a_branch(x):
    z = table(x)
    return jax.lax.cond(x[0] < 0, lambda z: jnp.max(z) ** 2, lambda z: jnp.min(z), z)


def by_a_rule(x):
    @jax.custom_jvp
    def largest(z):
        return jnp.max(z)

    largest.defjvp(lambda primals, tangents: jax.jvp(jnp.max, primals, tangents))
    return largest(table(x))


FUNCTIONS = {
    "a maximum": lambda x: jnp.max(table(x)),
    "with another start": lambda x: jax.lax.reduce(table(x), -9.0, jax.lax.max, (0, 1)),
    "in a function": lambda x: jax.jit(lambda z: jnp.max(z) ** 2)(table(x)),
    "in a branch": in_a_branch,
    "in a rule": by_a_rule,
    "scattered": lambda x: jnp.sum(jnp.zeros(4).at[jnp.array([0, 1] * 24)].max(table(x).ravel())),
}


def where_it_is_largest(x):
    z = table(x)
    return jnp.sum(jnp.where(z == lax.stop_gradient(jnp.max(z)), jnp.sin(z), 0.0))


def by_a_backward_rule(x):
    @jax.custom_vjp
    def largest(z):
        return jnp.max(z)

    def forward(z):
        return jnp.max(z), (z, jnp.max(z))

    def backward(residuals, ct):
        z, found = residuals
        return (jnp.where(z == found, ct, 0.0),)

    largest.defvjp(forward, backward)
    return largest(table(x))


FUNCTIONS |= {"by a rule of a user": by_a_backward_rule}
FUNCTIONS |= {"in a loop": in_a_loop, "captured by a loop": captured_by_a_loop}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_what_a_maximum_is_of_is_not_computed_again(f) -> None:
    program = pb.trace(f)(X)
    VJP(split=True).run(program.module, program.rules)
    forward, backward = str(program.module).split("@main.bwd", 1)
    assert re.search(TABLE, forward)
    assert not re.search(TABLE, backward.partition("func.func")[0])
    np.testing.assert_allclose(pb.vjp(f, X)[1](1.0)[0], jax.grad(f)(X), rtol=1e-12)


def test_an_equality_is_asked_for_once() -> None:
    """What it says is stored; the numbers may be computed again."""
    program = pb.trace(where_it_is_largest)(X)
    VJP(split=True).run(program.module, program.rules)
    backward = str(program.module).split("@main.bwd", 1)[1].partition("func.func")[0]
    assert "stablehlo.compare" not in backward
    assert re.search(TABLE, backward)
    slope = pb.vjp(where_it_is_largest, X)[1](1.0)[0]
    np.testing.assert_allclose(slope, jax.grad(where_it_is_largest)(X), rtol=1e-12)


def test_a_comparison_with_a_number_may_be_made_again() -> None:
    def f(x):
        z = table(x)
        return jnp.sum(jnp.where(z == 0.0, 1.0, z) ** 2)

    program = pb.trace(f)(X)
    VJP(split=True).run(program.module, program.rules)
    assert "i1>" not in str(program.module).split("@main.bwd", 1)[1].partition(")")[0]
