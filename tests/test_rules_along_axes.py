"""Rules with collectives along an axis that a `vmap` in the function maps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback import RuleResultError, artifact
from tests.rounding import FUNCTION, close

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

    The rule is of another function, so that its result shows, too. Of a square array, nobody can
    tell which of its axes is the batch.
    """
    f = with_rule_of_product(with_rule)
    x = np.random.default_rng(0).standard_normal((count, 3) if axis == 0 else (3, count))
    w = np.random.default_rng(1).standard_normal(x.shape)

    def of(vmap):
        return lambda x: jnp.sum(vmap(f, axis, axis)(x) ** 2 * w)

    expected = jax.value_and_grad(of(jax.vmap))(x)
    for vmap in (jax.vmap, pb.vmap) if count == 2 else (pb.vmap,):
        for found in (pb.value_and_grad(of(vmap))(x), jax.jit(pb.value_and_grad(of(vmap)))(x)):
            jax.tree.map(np.testing.assert_allclose, found, expected)
    if count == 3:
        for derived in (pb.grad(of(jax.vmap)), pb.grad(jax.jit(of(jax.vmap)))):
            with pytest.raises(RuleResultError) as raised:
                derived(x)
            words = str(raised.value)
            assert "jax.vmap has batched `function` and its rule apart" in words
            assert "axis of the result float64[3,3]" in words
            assert "where: tests/test_rules_along_axes.py:" in words


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("sizes", [(2, 4), (5, 2)])
def test_the_same_of_two_batches(sizes: tuple[int, int]) -> None:
    f = with_rule_of_product(jax.custom_vjp)
    xs = np.random.default_rng(0).standard_normal((*sizes, 3))
    ws = np.random.default_rng(1).standard_normal(xs.shape)
    nested = jax.vmap(jax.vmap(f, 0, 1), 0, 2)
    total = lambda xs: jnp.sum(nested(xs) ** 2 * ws.transpose(2, 1, 0))  # noqa: E731
    np.testing.assert_allclose(pb.grad(total)(xs), jax.grad(total)(xs))


def with_value_of_function(with_rule: Any, call: Callable[[Any], Any]) -> Any:
    """Its rule computes the value as its function does, so both have the batch along one axis."""
    weights = jnp.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]])
    ruled = with_rule(lambda x: jnp.sin(weights @ x))
    value = call(ruled)
    if with_rule is jax.custom_jvp:
        ruled.defjvp(lambda xs, ts: (value(xs[0]), 2 * (weights @ ts[0])))
    else:
        ruled.defvjp(lambda x: (value(x), x), lambda x, ct: (2 * (ct @ weights),))
    return ruled


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("call", [lambda f: f, jax.jit, lambda f: f.__wrapped__])
@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_rules_that_compute_the_value_as_their_function(with_rule: Any, call: Any) -> None:
    f = with_value_of_function(with_rule, call)
    x, w = np.random.default_rng(0).standard_normal((2, 3, 3))
    for around in (lambda f: f, jax.jit):
        total = lambda x: jnp.sum(around(jax.vmap(f, 1, 1))(x) ** 2 * w)  # noqa: B023, E731
        np.testing.assert_allclose(pb.grad(total)(x), jax.grad(total)(x))


@pytest.mark.usefixtures("float64")
def test_a_value_that_is_computed_otherwise_may_lie_otherwise() -> None:
    functions = jnp.sin, lambda x: 2.0 * jnp.flip(x), jnp.cumsum, lambda x: jnp.roll(x, 1)
    for one, other in itertools.permutations(functions, 2):
        f = jax.custom_jvp(lambda x: one(x) + 1.0)  # noqa: B023
        f.defjvp(lambda xs, ts: (other(xs[0]), ts[0]))  # noqa: B023
        with pytest.raises(RuleResultError, match="cannot be told"):
            pb.grad(lambda x: jnp.sum(jax.vmap(f)(x)))(np.ones((3, 3)))  # noqa: B023


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
    """JAX has wrong types where it traces such a call."""
    f = with_rule_of_shared_results(with_rule)
    x = np.arange(6.0).reshape((2, 3) if axis == 0 else (3, 2))

    def weighed(row):
        y, count = f(row)
        return y**2 * count * row

    def by_hand(x, t):
        y, count = jnp.ones(3), jnp.arange(3)
        x, t = np.moveaxis(x, axis, 0), np.moveaxis(t, axis, 0)
        slope = 5.0 if with_rule is jax.custom_jvp else x * t
        return np.sum(2 * y * slope * count * x + y**2 * count * t)

    t = np.cos(x)
    for vmap in (jax.vmap, pb.vmap):
        total = lambda x: jnp.sum(vmap(weighed, axis)(x))  # noqa: B023, E731
        if with_rule is jax.custom_jvp:
            found = pb.jvp(total, (x,), (t,))[1]
        elif vmap is pb.vmap:
            found = np.sum(pb.grad(total)(x) * t)
        else:  # there, the rule would be given one cotangent for all items
            with pytest.raises(RuleResultError, match="gives all items of a jax"):
                pb.grad(total)(x)
            continue
        np.testing.assert_allclose(found, by_hand(x, t))


@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_a_numpy_array_that_is_mapped_in_the_function(with_rule: Any) -> None:
    """JAX's own trace fails for these operands of a call."""
    f = with_rule_of_product(with_rule)
    function = lambda w, xs: jnp.sum(w * jax.vmap(f)(xs))  # noqa: E731
    xs = np.ones((2, 3))
    with pytest.raises(pb.PullbackError) as raised:
        pb.grad(lambda w: function(w, xs))(2.0)
    words = str(raised.value)
    assert "JAX cannot trace a call" in words
    assert "where: tests/test_rules_along_axes.py:" in words
    assert "jnp.asarray" in words
    expected = jax.grad(function)(2.0, xs)
    found = pb.grad(lambda w: function(w, jnp.asarray(xs)))(2.0)
    close(found, expected, ops=FUNCTION + 1 + xs.size)
