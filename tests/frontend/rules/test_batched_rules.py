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

    The rule is of another function, so that its result shows, too.
    """
    f = with_rule_of_product(with_rule)
    x = np.random.default_rng(0).standard_normal((count, 3) if axis == 0 else (3, count))
    w = np.random.default_rng(1).standard_normal(x.shape)

    def of(vmap):
        return lambda x: jnp.sum(vmap(f, axis, axis)(x) ** 2 * w)

    expected = jax.value_and_grad(of(jax.vmap))(x)
    for vmap in (jax.vmap, pb.vmap):
        for found in (pb.value_and_grad(of(vmap))(x), jax.jit(pb.value_and_grad(of(vmap)))(x)):
            jax.tree.map(np.testing.assert_allclose, found, expected)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_an_axis_of_the_batch_that_has_a_name(with_rule: Any) -> None:
    """An `all_gather` makes the batch another axis of each item, so it may be two of the array."""
    f = with_rule_of_product(with_rule)
    named = lambda x: jnp.sum(jax.vmap(f, axis_name="items")(x) ** 2)  # noqa: E731
    for derived in (pb.grad(named), pb.grad(jax.jit(named))):
        with pytest.raises(RuleResultError) as raised:
            derived(np.ones((3, 3)))
        words = str(raised.value)
        assert "jax.vmap has batched `function` and its rule apart" in words
        assert "axis of the result float64[3,3] is the batch cannot be told" in words
        assert "where: tests/frontend/rules/test_batched_rules.py:" in words
        assert "leave out `axis_name`" in words


WEIGHTS = np.random.default_rng(3).standard_normal((3, 3))

OF_VECTORS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: x @ WEIGHTS,
    "softmax": lambda x: jax.nn.softmax(x),
    "norm": lambda x: x / jnp.linalg.norm(x),
    "cumsum": lambda x: jnp.cumsum(x),
    "scan": lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), 0.0, x)[1],
    "while": lambda x: jax.lax.while_loop(lambda y: y[0] < 4, lambda y: 2 * y + x**2 + 1, x),
    "cond": lambda x: jax.lax.cond(x[0] > 0, jnp.sin, lambda x: WEIGHTS @ x, x),
    "gather": lambda x: x[jnp.array([2, 0, 1])] + x[jnp.argmax(x)],
    "scatter": lambda x: x.at[jnp.array([0, 2])].add(x[:2]),
    "sort": lambda x: jnp.sort(x),
    "concatenate": lambda x: jnp.concatenate([x[1:], jnp.zeros(1)]),
    "solve": lambda x: jnp.linalg.solve(WEIGHTS, x),
    "outer": lambda x: jnp.outer(x[:2], x).reshape(3, 2).sum(1),
    "convolution": lambda x: jnp.convolve(x, x, "same"),
}


def with_other_value(with_rule: Any, function: Callable[[Any], Any]) -> Any:
    """Its rule is of another function, whose batch lies behind."""
    ruled, slope = with_rule(function), 2 * WEIGHTS
    if with_rule is jax.custom_jvp:
        ruled.defjvp(lambda xs, ts: (WEIGHTS @ xs[0], slope @ ts[0]))
    else:
        ruled.defvjp(lambda x: (WEIGHTS @ x, None), lambda _, ct: (ct @ slope,))
    return ruled


def check_gradient(mapped: Any, by_item: Any, shape: tuple[int, ...], results: Any = None) -> None:
    """Compare with JAX's gradient of the items one by one."""
    x = np.random.default_rng(0).standard_normal(shape)
    w = np.random.default_rng(1).standard_normal(results or shape)
    found = pb.grad(lambda x: jnp.sum(mapped(x) ** 2 * w))(x)
    expected = jax.grad(lambda x: jnp.sum(by_item(x) ** 2 * w))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def by_item(f: Callable[[Any], Any], given: int, wanted: int) -> Callable[[Any], Any]:
    return lambda x: jnp.stack([f(item) for item in jnp.moveaxis(x, given, 0)], wanted)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", OF_VECTORS)
@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_as_many_items_as_each_has_elements(with_rule: Any, name: str) -> None:
    f = with_other_value(with_rule, OF_VECTORS[name])
    for axes in ((0, 0), (1, 0)):
        check_gradient(jax.vmap(f, *axes), by_item(f, *axes), (3, 3))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("around", [name for name in AROUND if name != "nothing"])
@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_as_many_items_inside_of_another_operation(with_rule: Any, around: str) -> None:
    f = with_other_value(with_rule, OF_VECTORS["scan"])
    of_item = lambda x: AROUND[around](f, x)  # noqa: E731
    check_gradient(jax.vmap(of_item, 1, 0), by_item(of_item, 1, 0), (3, 3))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("axes", [(0, 1, 0, 2), (1, 0, 2, 0), (1, 1, 1, 1)])
@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_two_batches_of_as_many_items(with_rule: Any, axes: tuple[int, ...]) -> None:
    f = with_other_value(with_rule, OF_VECTORS["scan"])
    mapped = jax.vmap(jax.vmap(f, *axes[:2]), *axes[2:])
    check_gradient(mapped, by_item(by_item(f, *axes[:2]), *axes[2:]), (3, 3, 3))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("shape", [(1,), (1, 3), (3, 1)])
@pytest.mark.parametrize("with_rule", [jax.custom_jvp, jax.custom_vjp])
def test_a_batch_of_one_item(with_rule: Any, shape: tuple[int, ...]) -> None:
    f = with_rule(lambda x: jax.lax.fori_loop(0, 2, lambda _, y: jnp.sin(y) + x, 0.0 * x))
    if with_rule is jax.custom_jvp:
        f.defjvp(lambda xs, ts: (3 * jnp.flip(xs[0].T).T, 2 * ts[0]))
    else:
        f.defvjp(lambda x: (3 * jnp.flip(x.T).T, None), lambda _, ct: (2 * ct,))
    for given, wanted in itertools.product(range(len(shape) + 1), repeat=2):
        x, y = (list(np.insert(shape, place, 1)) for place in (given, wanted))
        check_gradient(jax.vmap(f, given, wanted), by_item(f, given, wanted), x, y)


@pytest.mark.usefixtures("float64")
def test_a_function_that_closes_over_another_mapped_value() -> None:
    def of_both(x, scale):
        f = jax.custom_vjp(lambda x: jnp.cumsum(x) * scale)
        f.defvjp(lambda x: (WEIGHTS @ x, None), lambda _, ct: (2 * ct @ WEIGHTS,))
        return f(x)

    scales = jnp.asarray(WEIGHTS)
    for axis in (0, 1):
        rows = jnp.moveaxis(scales, axis, 0)
        check_gradient(
            lambda x: jax.vmap(of_both, (0, axis), 1)(x, scales),  # noqa: B023
            lambda x: jnp.stack([of_both(*each) for each in zip(x, rows, strict=True)], 1),  # noqa: B023
            (3, 3),
        )


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
        check_gradient(jax.vmap(f), by_item(f, 0, 0), (3, 3))


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
    assert "where: tests/frontend/rules/test_batched_rules.py:" in words
    assert "jnp.asarray" in words
    expected = jax.grad(function)(2.0, xs)
    found = pb.grad(lambda w: function(w, jnp.asarray(xs)))(2.0)
    close(found, expected, ops=FUNCTION + 1 + xs.size)
