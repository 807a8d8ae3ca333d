"""`lax.reduce` with a body of the user's: all arrays and initial values have derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import pullback as pb
from pullback import artifact

X = jnp.array([[0.3, -1.2, 0.7, 2.1, -0.4], [1.5, 0.2, -0.9, 0.1, 0.6]])


def logsumexp(x):
    def merge(a, b):
        m = jnp.maximum(a[0], b[0])
        return m, a[1] * jnp.exp(a[0] - m) + b[1] * jnp.exp(b[0] - m)

    start = jnp.array(-jnp.inf), jnp.array(0.0)
    m, total = lax.reduce((x, jnp.ones_like(x)), start, merge, (1,))
    return jnp.sum(m + jnp.log(total))


def value_and_index(x):
    def larger(a, b):
        return tuple(jnp.where(a[0] >= b[0], *pair) for pair in zip(a, b, strict=True))

    places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    m, place = lax.reduce((x, places), (jnp.array(-jnp.inf), jnp.array(-1)), larger, (1,))
    return jnp.sum(jnp.sin(m) * place)


def affine_maps(x):
    """In order: the body does not commute."""

    def after(a, b):
        return a[0] * b[1] + b[0], a[1] * b[1]

    shift, scale = lax.reduce((x, jnp.cos(x)), (jnp.array(0.0), jnp.array(1.0)), after, (1,))
    return jnp.sum(shift * scale)


def affine_maps_of_all(x):
    """In order of indices, whatever the order of the dimensions is that are named."""

    def after(a, b):
        return a[0] * b[1] + b[0], a[1] * b[1]

    shift, scale = lax.reduce((x, jnp.cos(x)), (jnp.array(0.0), jnp.array(1.0)), after, (1, 0))
    return shift * scale


def affine_maps_by_steps(x):
    shift, scale = 0.0, 1.0
    for column in x.T:
        shift, scale = shift * jnp.cos(column) + column, scale * jnp.cos(column)
    return jnp.sum(shift * scale)


def start_that_varies(x):
    return lax.reduce(x, x[0, 0], lambda a, b: a * b + 0 * a, (1, 0))


def nothing(x):
    return lax.reduce(x[:, :0], x[0, 0], lambda a, b: a * b + 0 * a, (0, 1))


CASES = [
    (logsumexp, lambda x: jnp.sum(jax.nn.logsumexp(x, 1))),
    (value_and_index, lambda x: jnp.sum(jnp.sin(x.max(1)) * x.argmax(1))),
    (affine_maps, affine_maps_by_steps),
    (affine_maps_of_all, lambda x: affine_maps_by_steps(x.reshape(1, -1))),
    (start_that_varies, lambda x: x[0, 0] * jnp.prod(x)),
    (nothing, lambda x: x[0, 0]),
]


@pytest.mark.parametrize(("function", "expected"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_a_reduction_has_derivatives_in_both_modes_and_in_a_file(function, expected):
    program = pb.trace(function)(X)
    direction = jnp.cos(X)
    value, tangent = jax.jvp(expected, (X,), (direction,))
    _, second = jax.jvp(jax.grad(expected), (X,), (direction,))
    for each in (program, pb.load(artifact.serialize(program))):
        assert jnp.allclose(each.grad()(X), jax.grad(expected)(X), atol=1e-6)
        assert jnp.allclose(jnp.stack(each.jvp()(X, direction)), jnp.stack([value, tangent]))
        assert jnp.allclose(each.grad().jvp()(X, direction)[1], second, atol=1e-5)


def test_rules_in_the_body_are_honoured():
    @jax.custom_jvp
    def add(a, b):
        return a + b

    add.defjvp(lambda primals, tangents: (add(*primals), 3 * (tangents[0] + tangents[1])))
    program = pb.trace(lambda x: lax.reduce(x, jnp.array(0.0), add, (0,)))(X[0, :2])
    for each in (program, pb.load(artifact.serialize(program))):
        assert jnp.allclose(each.grad()(X[0, :2]), 9.0), "once with its neighbour, once at the end"
