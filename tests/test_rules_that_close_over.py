"""Rules that use what their function closes over: operands of the call, and of the rule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
from pullback import artifact

X, Y, Z = jnp.array([0.3, 0.7, -0.2]), jnp.array([1.5, 0.4, 2.0]), jnp.array([0.9, -1.1, 0.6])


def forward(a, b):
    f = jax.custom_jvp(lambda x: jnp.sin(x) * a + b)
    f.defjvp(lambda p, t: (f(*p), 3.0 * t[0] * jnp.cos(p[0]) * a * a + b * t[0]))
    return f


def backward(a, b):
    """Its forward rule uses the values as well."""
    f = jax.custom_vjp(lambda x: jnp.sin(x) * a + b)
    f.defvjp(
        lambda x: (f(x), (x, b)), lambda r, ct: (3.0 * ct * jnp.cos(r[0]) * a * a + r[1] * ct,)
    )
    return f


def in_another_order(a, b):
    """The backward rule uses what the function uses last, and in a branch."""
    f = jax.custom_vjp(lambda x: jnp.sin(x) * a + b)
    f.defvjp(
        lambda x: (f(x), x),
        lambda x, ct: (jax.lax.cond(x[0] > 0, lambda c: c * b * a * a, jnp.negative, ct),),
    )
    return f


def nested(a, b):
    inner = forward(b, a)
    f = jax.custom_vjp(lambda x: inner(x) * b)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (7.0 * ct * inner(x) * b,))
    return f


KINDS = [forward, backward, in_another_order, nested]

USES = {
    "once": lambda make, x, y, z: make(y, z)(x) * x,
    "with values of its own": lambda make, x, y, z: make(jnp.exp(y), z[0])(x),
    "two calls of one function": lambda make, x, y, z: twice(make(y, z), x),
    "two functions of one code": lambda make, x, y, z: make(y, z)(x) * make(z, y)(x),
    "one value twice": lambda make, x, y, z: make(y, y)(x) + make(z, y)(x),
    "what has no derivative": lambda make, x, y, z: make(jax.lax.stop_gradient(x * y), z)(x),
    "an integer": lambda make, x, y, z: make(jnp.argmax(y), z)(x),
}


def twice(f, x):
    return f(x) * f(2.0 * x)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_derivatives_by_the_arguments(make, use):
    def function(x, y, z):
        return jnp.sum(use(make, x, y, z))

    args = X, Y, Z
    program = pb.trace(function)(*args)
    gradient, curvature = jax.jit(
        lambda x, *others: jax.value_and_grad(
            lambda x: jnp.vdot(jax.grad(function)(x, *others), Z)
        )(x)
    )(*args)
    expected = jax.jit(jax.grad(function))(*args)
    assert jnp.allclose(gradient, jnp.vdot(expected, Z), rtol=1e-5)
    assert jnp.allclose(pb.grad(function)(*args), expected, rtol=1e-5)
    assert jnp.allclose(program.jvp(wrt=0)(*args, Z)[1], jnp.vdot(expected, Z), rtol=1e-5)
    assert jnp.allclose(program.grad().vjp(wrt=0)(*args, Z)[1], curvature, rtol=1e-4)
    loaded = pb.load(artifact.serialize(program))
    assert jnp.allclose(loaded.grad()(*args), expected, rtol=1e-5)
    assert jnp.allclose(loaded.grad().vjp(wrt=0)(*args, Z)[1], curvature, rtol=1e-4)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_by_what_it_closes_over_is_an_error(make):
    def function(x, y, z):
        return jnp.sum(make(y, z)(x))

    for position in (1, 2):
        with pytest.raises(pb.MissingRuleError, match="closes over a value that is different"):
            pb.grad(function, position)(X, Y, Z)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_inside_a_jitted_function(make):
    """JAX cannot do this."""
    inner = jax.jit(lambda x, y, z: make(y, z)(x))
    found = pb.grad(lambda x, y, z: jnp.sum(inner(x, y, z) * inner(x, z, y)))(X, Y, Z)
    expected = jax.jit(jax.grad(lambda x, y, z: jnp.sum(make(y, z)(x) * make(z, y)(x))))(X, Y, Z)
    assert jnp.allclose(found, expected, rtol=1e-5)


def in_a_loop(x, y):
    return jax.lax.scan(lambda c, _: (c + jnp.sum(backward(y, y)(x)), None), 0.0, None, length=2)[0]


LEAKS = {
    "not by its function": lambda x, y: jnp.sum(of_the_rule(y)(x)),
    "of the function around a loop": in_a_loop,
    "of the function around a checkpoint": lambda x, y: jnp.sum(
        jax.checkpoint(lambda x: backward(y, y)(x))(x)
    ),
}


def of_the_rule(a):
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), a * t[0]))
    return f


@pytest.mark.parametrize("function", LEAKS.values(), ids=LEAKS)
def test_what_is_no_operand_of_the_call_is_an_error(function):
    with pytest.raises(pb.LeakedValueError, match="uses a value of the function around it") as e:
        pb.grad(function)(X, Y)
    assert "test_rules_that_close_over.py:" in e.value.where
    assert "pass the value as an argument" in e.value.do
