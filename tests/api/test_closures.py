"""Rules for functions that take functions, and loops with a bound."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentMismatchError
from tests.api.checks import assert_agrees
from tests.rounding import close


@functools.partial(pb.custom_vjp, closure_convert_argnums=0)
def doubled(f, x):
    return f(x)


def _backward(residuals, ct):
    return jax.vjp(lambda f, x: f(x), *residuals)[1](2 * ct)


doubled.defvjp(lambda f, x: (f(x), (f, x)), _backward)


@functools.partial(pb.custom_jvp, closure_convert_argnums=0)
def tripled(f, x):
    return f(x)


@tripled.defjvp
def _(primals, tangents):
    out, tangent = jax.jvp(lambda f, x: f(x), primals, tangents)
    return out, 3 * tangent


def closure(apply, w, x):
    def inner(t):
        return jnp.sin(w * t)

    return apply(lambda t: inner(t) * w, x)


def partial(apply, w, x):
    return apply(functools.partial(lambda w, t: jnp.sin(w * t) * w, w), x)


def default(apply, w, x):
    return apply(lambda t, w=w: jnp.sin(w * t) * w, x)


def keyword(apply, w, x):
    def inner(t, *, w=w):
        return jnp.sin(w * t) * w

    return apply(inner, x)


def container(apply, w, x):
    params = {"w": [w]}
    return apply(lambda t: jnp.sin(params["w"][0] * t) * w, x)


def nested(apply, w, x):
    return apply(lambda t: apply(lambda s: jnp.sin(w * s) * w, t), x)


def recursive(apply, w, x):
    def power(count, t):
        return jnp.sin(w * t) if count == 0 else w * power(count - 1, t)

    return apply(functools.partial(power, 1), x)


def mutually_recursive(apply, w, x):
    def even(count, t):
        return jnp.sin(w * t) if count == 0 else odd(count - 1, t)

    def odd(count, t):
        return w * even(count - 1, t)

    return apply(functools.partial(odd, 1), x)


def shared_variable(apply, w, x):
    """Two functions of one variable, which one of them assigns."""
    factor = w

    def double():
        nonlocal factor
        factor = 2 * w

    def function(t):
        double()
        return jnp.sin(w * t) * factor / 2

    return apply(function, x)


def not_filled_yet(apply, w, x):
    def function(t):
        return jnp.sin(w * t) * (w if x is not None else later)

    found = apply(function, x)
    later = 3.0
    return found + 0 * later


def with_attribute(apply, w, x):
    def inner(t):
        return jnp.sin(w * t) * w / inner.scale

    inner.scale = 1.0
    return apply(inner, x)


USES = [
    *(closure, partial, default, keyword, container),
    *(recursive, mutually_recursive, shared_variable, not_filled_yet, with_attribute),
]


@pytest.mark.parametrize("library", [pb, jax])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("apply", "factor"), [(doubled, 2), (tripled, 3)])
def test_values_closed_over_get_gradients(library, use, apply, factor):
    found = library.grad(functools.partial(use, apply), (0, 1))(1.3, 0.4)
    expected = jax.grad(lambda w, x: factor * jnp.sin(w * x) * w, (0, 1))(1.3, 0.4)
    assert_agrees(found, expected)


def test_closures_in_closures():
    found = pb.grad(functools.partial(nested, tripled), (0, 1))(1.3, 0.4)
    assert_agrees(found, jax.grad(functools.partial(nested, tripled), (0, 1))(1.3, 0.4))
    assert found[1] == pytest.approx(9 * 1.3**2 * np.cos(1.3 * 0.4), rel=1e-5)


def test_second_order_through_a_converted_closure():
    ours, theirs = (
        library.grad(library.grad(functools.partial(closure, doubled)))(1.3, 0.4)
        for library in (pb, jax)
    )
    assert_agrees(ours, theirs)


def test_without_the_option_they_are_those_of_jax():
    assert isinstance(pb.custom_jvp(jnp.sin), jax.custom_jvp)
    assert isinstance(pb.custom_vjp(jnp.sin).backward, type(jax.custom_vjp(jnp.sin)))
    assert doubled.__name__ == "doubled"
    assert doubled(jnp.sin, 0.5) == jnp.sin(0.5)


def newton(a, steps=20):
    return pb.bounded_while_loop(
        lambda x: jnp.abs(x * x - a) > 1e-6, lambda x: (x + a / x) / 2, a, steps
    )


def test_a_bounded_loop_says_so_in_the_ir():
    module = str(pb.trace(newton)(9.0))
    assert module.count("pullback.max_trip_count = 20 : i64") == 1
    for each in (newton, jax.jit(newton)):
        close(each(9.0), np.float32(3.0), ops=3)


def test_a_bounded_loop_ends_at_its_bound():
    def squared(x, steps):
        return pb.bounded_while_loop(lambda x: True, lambda x: x * x, x, steps)

    assert squared(2.0, 3) == 256.0
    assert squared(2.0, 0) == 2.0
    assert pb.grad(squared)(1.1, 3) == pytest.approx(8 * 1.1**7, rel=1e-5)
    with pytest.raises(ArgumentMismatchError, match="negative, but it is -1"):
        squared(2.0, -1)


@pytest.mark.parametrize(("goes_on", "found"), [(3.0, r"float32\[\]"), ((True,), "'bool")])
def test_the_condition_of_a_bounded_loop_is_one_bool(goes_on, found):
    with pytest.raises(TypeError, match=f"a boolean scalar, but it returned .?{found}"):
        pb.bounded_while_loop(lambda x: goes_on, lambda x: x, 1.0, 3)


@pytest.mark.parametrize(("order", "expected"), [(1, 1 / 6), (2, -1 / 108), (3, 1 / 648)])
def test_derivatives_of_a_bounded_loop(order, expected):
    function = newton
    for _ in range(order):
        function = pb.grad(function)
    assert function(9.0) == pytest.approx(expected, rel=1e-4)
    batch = jax.vmap(function)(np.array([9.0, 9.0], np.float32))
    np.testing.assert_allclose(batch, [expected] * 2, rtol=1e-4)


@functools.partial(pb.custom_vjp, closure_convert_argnums=0)
def applied(f, x):
    return f(x)


applied.defvjp(lambda f, x: (f(x), (f, x)), lambda r, ct: jax.vjp(lambda f, x: f(x), *r)[1](3 * ct))


@pytest.mark.parametrize("library", [jax, pb])
def test_a_function_may_close_over_a_traced_integer(library):
    """It was no leaf of the function, and leaked from a batch or a loop into the rule."""

    def f(x, n):
        return applied(lambda x: x * n * jnp.arange(4.0)[n], x)

    ns = jnp.arange(1, 4)
    assert library.grad(lambda x: jax.vmap(lambda n: f(x, n))(ns).sum())(2.0) == 42
    assert (
        library.grad(lambda x: jax.lax.scan(lambda c, n: (c + f(x, n), None), 0.0, ns)[0])(2.0)
        == 42
    )
    assert jax.jit(library.grad(f))(2.0, 3) == 27
    assert library.grad(f, (0, 1), allow_int=True)(2.0, 3)[0] == 27
