"""Rules that a file needs where reverse mode transposes what a rule calls on its tangents.

That is a function with a rule itself, as in the rule of an implicit solve. What it computes of its
other operands is in the gradient then, and the next derivative needs its rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import linear_call

import pullback as pb
from pullback import artifact

pytestmark = pytest.mark.usefixtures("float64")


@jax.custom_vjp
def false_root(a):
    return jnp.sqrt(a)


false_root.defvjp(lambda a: (false_root(a), a), lambda a, ct: (7 * ct / (2 * false_root(a)),))


@jax.custom_jvp
def root(a):
    return jnp.sqrt(a)


root.defjvp(lambda p, t: (root(p[0]), 3 * t[0] / (2 * root(p[0]))))

INNER: dict[str, Callable[[Any], Any]] = {
    "custom_vjp": false_root,
    "custom_jvp": root,
    "relu": lambda a: jnp.sqrt(jax.nn.relu(a)),
    "cholesky": lambda a: jnp.linalg.cholesky(a * jnp.eye(2))[0, 0],
    "a branch": lambda a: jax.lax.cond(a > 1, jax.nn.softplus, jnp.sin, a),
    "a checkpoint": lambda a: jax.checkpoint(jax.nn.softplus)(a),
}


def quotient_by(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @jax.custom_jvp
    def quotient(x, a):
        return x / inner(a)

    @quotient.defjvp
    def _(primals, tangents):
        (x, a), (dx, da) = primals, tangents
        return quotient(x, a), quotient(dx, a) - quotient(x * da, a) / (2 * a)

    return lambda a: jnp.sin(quotient(3.0, a))


@pytest.mark.parametrize("name", INNER)
def test_the_second_gradient_of_a_file(name: str) -> None:
    h, a = quotient_by(INNER[name]), jnp.array(2.0)
    expected = jax.grad(jax.grad(h))(a)
    program = pb.trace(h)(a)
    loaded = pb.load(artifact.serialize(program))
    np.testing.assert_allclose(loaded.grad().grad()(a), expected, rtol=1e-12)
    np.testing.assert_allclose(loaded.grad().jvp()(a, 1.0)[1], expected, rtol=1e-12)
    np.testing.assert_allclose(program.stage_rules().grad().grad()(a), expected, rtol=1e-12)
    third = jax.grad(jax.grad(jax.grad(h)))(a)
    np.testing.assert_allclose(loaded.grad().grad().grad()(a), third, rtol=1e-10)


def times(r: Any, x: Any) -> Any:
    return linear_call(lambda r, x: r * x, lambda r, ct: r * ct, r, x)


@jax.custom_vjp
def by_vjp(x: Any) -> Any:
    return times(jnp.sin(x), x)


by_vjp.defvjp(lambda x: (by_vjp(x), x), lambda x, ct: (2 * times(jnp.cos(x), ct),))


@jax.custom_jvp
def by_jvp(x: Any) -> Any:
    return times(jnp.sin(x), x)


by_jvp.defjvp(lambda p, t: (by_jvp(*p), 2 * times(jnp.cos(p[0]), t[0])))


@pytest.mark.parametrize(
    "wrap", [lambda f: f, jax.jit, jax.checkpoint], ids=["plain", "jit", "ckpt"]
)
@pytest.mark.parametrize("function", [by_vjp, by_jvp], ids=["vjp", "jvp"])
@pytest.mark.parametrize("order", [1, None])
def test_a_linear_call_whose_residual_depends_on_the_argument(
    function: Any, wrap: Any, order: int | None
) -> None:
    """In a function with a rule of its own: it is transposed by its linear operands only."""
    program = pb.trace(wrap(lambda x: function(x) * x))(0.5)
    loaded = pb.load(artifact.serialize(program, order=order))
    first = 2 * np.cos(0.5) * 0.5 + 0.5 * np.sin(0.5)
    np.testing.assert_allclose(loaded.grad()(0.5), first, rtol=1e-12)
    np.testing.assert_allclose(loaded.jvp()(0.5, 1.0)[1], first, rtol=1e-12)
    if order is None:
        second = program.grad().grad()(0.5)
        np.testing.assert_allclose(loaded.grad().grad()(0.5), second, rtol=1e-12)


def test_a_solve_whose_rule_solves_for_the_tangent() -> None:
    @jax.custom_jvp
    def solve(a, x):
        return jnp.linalg.inv(a) @ x

    @solve.defjvp
    def _(primals, tangents):
        (a, x), (da, dx) = primals, tangents
        y = solve(a, x)
        return y, solve(a, dx - da @ y)

    matrix = jnp.array([[2.0, 0.3], [0.1, 1.5]])

    def loss(s):
        return jnp.sum(solve(matrix * s, jnp.array([1.0, -2.0])) ** 3)

    loaded = pb.load(artifact.serialize(pb.trace(loss)(1.2)))
    np.testing.assert_allclose(loaded.grad().grad()(1.2), jax.grad(jax.grad(loss))(1.2), rtol=1e-10)
