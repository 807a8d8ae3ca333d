"""Rules with collectives along an axis that a `vmap` in the function maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback import artifact

AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda f, x: f(x),
    "jit": lambda f, x: jax.jit(f)(x),
    "scan": lambda f, x: jax.lax.scan(lambda c, s: (f(c * s), None), x, jnp.array([0.5, 2.0]))[0],
    "cond": lambda f, x: jax.lax.cond(x.sum() < 9, f, lambda x: x, x),
    "checkpoint": lambda f, x: jax.checkpoint(f)(x),
}


def of_unit_length(x):
    return x / jnp.sqrt(jax.lax.psum(x**2, "items"))


def centred(x):
    return x**2 - jax.lax.pmean(x**2, "items")


def with_rules() -> tuple[Any, Any]:
    first, second = jax.custom_jvp(of_unit_length), jax.custom_vjp(centred)

    @first.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        y, length = first(x), jnp.sqrt(jax.lax.psum(x**2, "items"))
        return y, (t - y * jax.lax.psum(y * t, "items")) / length

    second.defvjp(
        lambda x: (second(x), x - 0.0 * jax.lax.pmean(x, "items")),
        lambda x, ct: (2 * x * (ct - jax.lax.pmean(ct, "items")),),
    )
    return first, second


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("which", [0, 1])
def test_rules_that_name_the_axis_of_a_vmap_inside(which: int, around: str) -> None:
    """JAX traces such a rule while the vmap goes on; here, that is over."""
    x, t = jnp.array([0.3, -0.2, 0.7]), jnp.array([1.0, 0.5, -0.5])

    def over_items(f):
        return lambda x: jnp.sum(
            jax.vmap(lambda v: AROUND[around](f, v), axis_name="items")(x) ** 3
        )

    f, plain = over_items(with_rules()[which]), over_items((of_unit_length, centred)[which])
    program = pb.trace(f)(x)
    assert program.rules
    for derived in (program, pb.load(artifact.serialize(program)), jax.jit(f)):
        np.testing.assert_allclose(pb.grad(derived)(x), jax.grad(plain)(x), rtol=1e-12)
        found, expected = pb.jvp(derived, (x,), (t,)), jax.jvp(plain, (x,), (t,))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pb.hessian(f)(x), jax.hessian(plain)(x), rtol=1e-11, atol=1e-13)


def with_rule_of_product(with_rule: Any) -> Any:
    """A loop, whose batch lies in front, with the rule of a product, whose batch lies behind."""
    weights = jnp.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]])

    def function(x):
        return jax.lax.fori_loop(0, 2, lambda _, y: jnp.sin(y) + x, jnp.zeros_like(x))

    ruled = with_rule(function)
    if with_rule is jax.custom_jvp:
        ruled.defjvp(lambda xs, ts: (weights @ xs[0], 2 * (weights @ ts[0])))
    else:
        ruled.defvjp(lambda x: (weights @ x, None), lambda _, ct: (2 * (ct @ weights),))
    return ruled


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_rules_whose_batch_lies_along_another_axis(with_rule: Any, axis: int, count: int) -> None:
    """JAX takes the axes of the function for those of the rule, where it traces a call.

    The rule is of another function, so that its result shows, too.
    """
    f = with_rule_of_product(with_rule)
    x = np.random.default_rng(0).standard_normal((count, 3) if axis == 0 else (3, count))
    w = np.random.default_rng(1).standard_normal(x.shape)

    def of(vmap):
        return lambda x: jnp.sum(vmap(f, axis, axis)(x) ** 2 * w)

    expected = jax.value_and_grad(of(jax.vmap))(x)
    for vmap in (jax.vmap, pb.vmap):
        for found in (
            pb.value_and_grad(of(vmap))(x),
            jax.value_and_grad(jax.jit(of(vmap)))(x),
            jax.jit(pb.value_and_grad(of(vmap)))(x),
        ):
            jax.tree.map(np.testing.assert_allclose, found, expected)
    nested = jax.vmap(jax.vmap(f, axis, axis))
    xs, ws = np.stack([x, 2 * x]), np.stack([w, w**2])
    found, expected = (p.grad(lambda xs: jnp.sum(nested(xs) ** 2 * ws))(xs) for p in (pb, jax))
    np.testing.assert_allclose(found, expected)


def halved(x):
    return jnp.sin(x) / 2, jnp.round(x).astype(int)


def with_rule_of_shared_results(with_rule: Any) -> Any:
    """Its results differ by item; what its rule gives beside them does not."""
    ruled, counts = with_rule(halved), jnp.arange(3)
    none = np.zeros(3, jax.dtypes.float0)
    if with_rule is jax.custom_jvp:
        ruled.defjvp(lambda xs, ts: ((jnp.ones(3), counts), (jnp.full(3, 5.0), none)))
    else:
        ruled.defvjp(lambda x: ((jnp.ones(3), counts), x), lambda x, cts: (cts[0] * x,))
    return ruled


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_each_item_has_what_its_rule_gives_all_of_them(with_rule: Any, axis: int) -> None:
    """JAX runs such a rule by itself, but has wrong types where it traces the call."""
    f = with_rule_of_shared_results(with_rule)
    x = np.arange(6.0).reshape((2, 3) if axis == 0 else (3, 2))

    def weighed(row):
        y, count = f(row)
        return y**2 * count * row

    def total(x):
        return jnp.sum(jax.vmap(weighed, axis)(x))

    def by_hand(x, t):
        y, count = jnp.ones(3), jnp.arange(3)
        x, t = np.moveaxis(x, axis, 0), np.moveaxis(t, axis, 0)
        slope = 5.0 if with_rule is jax.custom_jvp else x * t
        return np.sum(2 * y * slope * count * x + y**2 * count * t)

    t = np.cos(x)
    expected = by_hand(x, t)
    for m, g in ((jax, jax.jit(total)), (pb, total)):
        if with_rule is jax.custom_jvp:
            found = m.jvp(g, (x,), (t,))[1]
        else:
            found = np.sum(m.grad(g)(x) * t)
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_a_numpy_array_that_is_mapped_in_the_function(with_rule: Any) -> None:
    """JAX's own trace fails for these operands of a call."""
    f = with_rule_of_product(with_rule)
    xs = np.ones((2, 3))
    function = lambda w: jnp.sum(w * jax.vmap(f)(xs))  # noqa: E731
    np.testing.assert_allclose(pb.grad(function)(2.0), jax.grad(function)(2.0))
