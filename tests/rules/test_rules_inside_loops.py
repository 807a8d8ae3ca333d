"""Rules that replace their op, expand it, or transpose their own jvp also work inside loops.

There the backward ops are in another block than the primal ones, and reach them by residuals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb
import pullback_runtime
from pullback import _jax
from pullback._jax import ir
from pullback.passes.manager import run_pipeline

INDICES = np.array([[0], [3], [3], [1]])
ROWS = lax.ScatterDimensionNumbers((), (0,), (0,))


def sort(x: Any) -> Any:
    return lax.sort((jnp.sin(x), x * x))[1]


def product(x: Any) -> Any:
    padded = lax.pad(x, jnp.ones((), x.dtype), ((1, 1, 0),))
    return lax.reduce_window(padded, np.ones((), x.dtype), lax.mul, (3,), (1,), "VALID")


def product_of_slices(x: Any) -> Any:
    padded = lax.pad(x, jnp.ones((), x.dtype), ((1, 1, 0),))
    return padded[:-2] * padded[1:-1] * padded[2:]


def largest(x: Any) -> Any:
    return lax.scatter_max(x, INDICES, jnp.cos(x[:4]), ROWS, mode="promise_in_bounds")


def overwrite(x: Any) -> Any:
    return lax.scatter(x, INDICES, x[:4] * x[1:], ROWS, mode="promise_in_bounds")


def pool(x: Any) -> Any:
    return lax.reduce_window(x * x, np.array(-np.inf, x.dtype), lax.max, (3,), (1,), "SAME")


BODIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sort": (sort, sort),
    "product": (product, product_of_slices),
    "largest": (largest, largest),
    "overwrite": (overwrite, overwrite),
    "pool": (pool, pool),
}


def repeat(body: Callable[..., Any]) -> Callable[..., Any]:
    def repeated(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, v: body(0.5 * v + 0.3), x)

    return repeated


def derive(function: Callable[..., Any], x: np.ndarray, pipeline: str) -> Callable[..., Any]:
    text = jax.jit(function).lower(x).as_text()
    assert "stablehlo.while" in text
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, f"builtin.module({pipeline})")
    assert module.operation.verify()
    return pullback_runtime.compile(module)


@pytest.mark.parametrize("name", BODIES)
def test_inside_a_loop(name: str) -> None:
    """vjp, jvp and jvp of vjp of three rounds agree with JAX."""
    body, reference = BODIES[name]
    rng = np.random.default_rng(1)
    x, v, ct, dct = (rng.uniform(0.5, 2.0, 5) for _ in range(4))
    loop, expected = repeat(body), repeat(reference)

    def pulled(x: Any, ct: Any) -> Any:
        return jax.vjp(expected, x)[1](ct)[0]

    _, dy = jax.jvp(expected, (x,), (v,))
    np.testing.assert_allclose(derive(loop, x, "jvp")(x, v)[1], dy, rtol=1e-9)
    ct_x, dct_x = jax.jvp(pulled, (x, ct), (v, dct))
    np.testing.assert_allclose(derive(loop, x, "vjp")(x, ct)[1], ct_x, rtol=1e-9)
    found = derive(loop, x, "vjp,jvp")(x, ct, v, dct)
    np.testing.assert_allclose(found[3], dct_x, rtol=1e-9, atol=1e-12)


# What only decides which number is taken has an infinite slope here: no zero is to meet it.


def in_a_branch(x: Any, bound: Any) -> Any:
    """The branch also tells whether the loop shall go on, as mujoco's search for a step does."""

    def step(x: Any) -> Any:
        return 2 * x, 2 * x > bound

    (x, goes_on) = lax.cond(x > bound, step, lambda x: (x, False), x)
    return jnp.where(goes_on, x, 3 * x)


def in_a_function(x: Any, bound: Any) -> Any:
    return jax.jit(lambda x, bound: (x > bound, 2 * x))(x, bound)[1]


def in_a_loop(x: Any, bound: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        return 2 * state[0], state[0] > bound

    return lax.fori_loop(0, 2, step, (x, True))[0]


@jax.custom_jvp
def in_a_rule(x: Any, bound: Any) -> Any:
    return jnp.where(x > bound, 2 * x, 3 * x)


@in_a_rule.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, bound), (t, _) = primals, tangents
    return in_a_rule(x, bound), jnp.where(x > bound, 2 * t, 3 * t)


def in_a_key(x: Any, bound: Any) -> Any:
    return lax.sort((jnp.stack([bound, x]), jnp.stack([x, 2 * x])), num_keys=1)[1].sum()


DECIDE = [in_a_branch, in_a_function, in_a_loop, in_a_rule, in_a_key]


@pytest.mark.parametrize("turns", ["counted", "unknown"])
@pytest.mark.parametrize("body", DECIDE, ids=lambda body: body.__name__)
def test_what_only_decides_has_no_cotangent(body: Any, turns: str) -> None:
    def loss(x: Any, count: Any = 3) -> Any:
        bound = jnp.sqrt(x - 0.3)
        return lax.fori_loop(0, count, lambda _, x: body(x, bound), x)

    x = jnp.float32(0.3)
    found = pb.grad(loss)(x) if turns == "counted" else pb.grad(loss)(x, jnp.int32(3))
    np.testing.assert_allclose(found, jax.grad(loss)(x), rtol=1e-6)


def test_a_rule_without_cotangent_for_what_decides() -> None:
    """JAX multiplies the zero for that by the slope, which gives NaN."""

    @jax.custom_vjp
    def f(x: Any, bound: Any) -> Any:
        return jnp.where(x > bound, 2 * x, 3 * x)

    f.defvjp(lambda x, b: (f(x, b), x > b), lambda up, ct: (jnp.where(up, 2 * ct, 3 * ct), None))

    def loss(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, y: f(y, jnp.sqrt(x - 0.3)), x)

    np.testing.assert_allclose(pb.grad(loss)(jnp.float32(0.3)), 8.0)
