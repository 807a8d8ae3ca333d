"""Derivative rules that a compiler loses: the API gives the rule's answer at every order."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import linear_call
from jax.experimental.ode import odeint

import pullback as pb
from tests.api.checks import assert_agrees


@jax.custom_jvp
def false_jvp(x):
    return x * x


@false_jvp.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return false_jvp(x), 7.0 * jnp.cos(x) * dx


@jax.custom_vjp
def false_vjp(x):
    return x * x


false_vjp.defvjp(lambda x: (x * x, x), lambda x, ct: (5.0 * ct * jnp.sin(x),))


def cube_root(a):
    """By Newton's method, whose derivative is never taken: `custom_root` has its own."""

    def solve(f, x):
        return jax.lax.fori_loop(0, 30, lambda _, x: x - f(x) / (3 * x * x), x)

    return jax.lax.custom_root(lambda x: x**3 - a, 1.0, solve, lambda g, y: y / g(1.0))


def decay(k):
    return odeint(lambda y, t, k: -k * y, jnp.ones(2), jnp.linspace(0.0, 1.0, 3), k).sum()


def conjugate_gradient(b):
    matrix = jnp.array([[4.0, 1.0], [1.0, 3.0]])
    return jax.scipy.sparse.linalg.cg(lambda x: matrix @ x * b[0], b)[0].sum()


PROBES = {
    "custom_jvp": (false_jvp, 1.3),
    "relu at 0": (jax.nn.relu, 0.0),
    "stop_gradient": (lambda x: x * jax.lax.stop_gradient(x), 3.0),
    "custom_root": (cube_root, 8.0),
    "odeint": (decay, 0.7),
    "cg": (conjugate_gradient, np.array([1.0, 2.0], np.float32)),
}


@pytest.mark.parametrize("name", [*PROBES, "custom_vjp"])
def test_a_gradient_follows_the_rule(name):
    function, x = PROBES.get(name, (false_vjp, 1.3))
    assert_agrees(pb.grad(function)(x), jax.grad(function)(x), 2e-4)


@pytest.mark.parametrize("name", ["custom_jvp", "relu at 0", "stop_gradient", "custom_root", "cg"])
def test_a_jvp_follows_the_rule(name):
    function, x = PROBES[name]
    arguments = (x,), (np.ones_like(x, np.float32),)
    assert_agrees(pb.jvp(function, *arguments), jax.jvp(function, *arguments), 2e-4)


def test_the_numbers_are_those_of_the_false_rules():
    assert pb.grad(false_jvp)(1.3) == pytest.approx(7 * np.cos(1.3))
    assert pb.grad(false_vjp)(1.3) == pytest.approx(5 * np.sin(1.3))
    assert pb.grad(jax.nn.relu)(0.0) == 0.0
    assert pb.grad(lambda x: x * jax.lax.stop_gradient(x))(3.0) == 3.0


@pytest.mark.parametrize("function", [false_jvp, false_vjp, cube_root])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_orders(function, order):
    ours = theirs = function
    for _ in range(order):
        ours, theirs = pb.grad(ours), jax.grad(theirs)
    assert_agrees(ours(1.3), theirs(1.3), 2e-4)


def test_forward_mode_through_a_custom_vjp():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(false_vjp, (1.3,), (2.0,))
    out, tangent = pb.jvp(false_vjp, (1.3,), (2.0,))
    assert (out, tangent) == (pytest.approx(1.69), pytest.approx(10 * np.sin(1.3)))
    assert pb.jacfwd(pb.grad(false_vjp))(1.3) == pytest.approx(5 * np.cos(1.3))
    assert pb.linearize(false_vjp, 1.3)[1](2.0) == pytest.approx(10 * np.sin(1.3))


def unrolled(x):
    for _ in range(3):
        x = false_jvp(x) * 0.3
    return x


def scanned(x):
    return jax.lax.scan(lambda c, _: (false_jvp(c) * 0.3, None), x, None, length=3)[0]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_rule_in_a_loop_is_that_of_the_unrolled_loop(order):
    """JAX itself gives other numbers for a false rule in a scan, reverse over reverse."""
    ours, theirs = scanned, unrolled
    for _ in range(order):
        ours, theirs = pb.grad(ours), jax.grad(theirs)
    assert_agrees(ours(0.3), theirs(0.3), 1e-4)


def test_a_while_loop_that_ends_when_it_has_converged():
    def root(a):
        return jax.lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-5, lambda x: (x + a / x) / 2, a)

    def steps(a, count):
        return functools.reduce(lambda x, _: (x + a / x) / 2, range(count), a)

    count = next(n for n in range(20) if abs(float(steps(9.0, n)) ** 2 - 9.0) <= 1e-5)
    expected = jax.grad(lambda a: steps(a, count))(9.0)
    assert_agrees(pb.grad(root)(9.0), expected, 1e-5)
    assert_agrees(pb.jvp(root, (9.0,), (1.0,))[1], expected, 1e-5)


@jax.custom_vjp
def main(x, y):
    """A function whose rules are `@main.fwd` and `@main.bwd`."""
    return jnp.sin(x) * y


main.defvjp(lambda x, y: (main(x, y), y), lambda y, ct: (3.0 * ct * y, 5.0 * ct))


def test_a_rule_may_have_the_name_of_the_second_function_of_a_split():
    x, y, ct = jnp.array([0.3, 0.7]), jnp.array([0.2, -0.7]), jnp.array([1.5, -0.4])

    def function(x, y):
        return jnp.exp(main(x, y))

    factor = jnp.exp(jnp.sin(x) * y) * ct
    found = pb.vjp(function, x, y)[1](ct)
    for ours, expected in zip(found, (3.0 * factor * y, 5.0 * factor), strict=True):
        assert jnp.allclose(ours, expected)
    assert jnp.allclose(pb.linearize(function, x, y)[1](ct, ct), factor * (3.0 * y + 5.0))


def test_the_map_of_a_linear_call_is_its_own_where_its_transpose_stops_a_cotangent():
    """`linearize` had left out the tangent by which the transpose gives zero."""

    def function(x, y):
        def transpose(_, ct):
            return ct, jnp.zeros_like(ct)

        return linear_call(lambda _, v: v[0] + v[1], transpose, (), (x, y))

    _, linear = pb.linearize(function, 1.0, 2.0)
    assert linear(3.0, 5.0) == pb.jvp(function, (1.0, 2.0), (3.0, 5.0))[1] == 8.0
    assert pb.grad(function, (0, 1))(1.0, 2.0) == (1.0, 0.0)
