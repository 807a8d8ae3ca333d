"""`lax.reduce` with a body of the user's: all arrays and initial values have derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import pullback as pb
from pullback import artifact
from tests.rounding import close

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


BODIES = {
    "sum of squares": lambda a, b: a + b * b,
    "sum of absolute values": lambda a, b: a + jnp.abs(b),
    "exponential average": lambda a, b: 0.9 * a + 0.1 * b,
    "difference": lambda a, b: a - b,
}
HARMLESS = {
    "norm": (lambda a, b: jnp.sqrt(a * a + b * b), jnp.linalg.norm),
    "logsumexp": (lambda a, b: jnp.log(jnp.exp(a) + jnp.exp(b)), jax.nn.logsumexp),
    "sum of velocities": (
        lambda a, b: (a + b) / (1 + a * b),
        lambda x: jnp.tanh(sum(jnp.arctanh(x))),
    ),
}


def in_a_reduction(body):
    return lambda x: lax.reduce(x, 0.0, body, (0,))


def in_windows(body):
    return lambda x: jnp.sum(lax.reduce_window(x, 0.0, body, (2,), (1,), "VALID"))


@pytest.mark.parametrize("around", [in_a_reduction, in_windows])
@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_not_associative_is_refused(name, around):
    """XLA combines elements in an order of its own: the function has no one value."""
    f, x = around(BODIES[name]), jnp.array([1.0, 2.0, 3.0])
    close(pb.trace(f)(x)(x), f(x), ops=3 * len(x))
    from_elsewhere = pb.load(jax.jit(f).lower(x).as_text().encode())
    for derive in (
        lambda: pb.value_and_grad(f)(x),
        lambda: pb.jvp(f, (x,), (x,)),
        from_elsewhere.grad,
    ):
        with pytest.raises(pb.MissingRuleError, match="not associative") as error:
            derive()
        assert "jax.lax.scan" in error.value.do
    with pytest.raises(pb.MissingRuleError, match="not associative") as error:
        pb.value_and_grad(f)(x)
    assert "test_reduce_as_fold.py" in error.value.where


@pytest.mark.parametrize("around", [jax.jit, lambda f: f])
@pytest.mark.parametrize("name", HARMLESS)
def test_rounding_does_not_make_a_body_one_that_is_not_associative(name, around):
    body, expected = HARMLESS[name]
    x = jnp.array([0.5, 0.2, -0.3])
    start = -jnp.inf if name == "logsumexp" else 0.0
    found = around(pb.grad(lambda x: lax.reduce(x, start, body, (0,))))(x)
    assert jnp.allclose(found, jax.grad(expected)(x), rtol=1e-5)
    if name != "logsumexp":
        assert jnp.isfinite(around(pb.grad(in_windows(body)))(x)).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64"])
def test_bodies_of_other_types_are_looked_at_as_well(dtype):
    x = jnp.ones(3, dtype)
    start = jnp.array(1, dtype)
    product = lambda x: lax.reduce(x, start, lambda a, b: a * b + 0 * a, (0,)).real  # noqa: E731
    assert pb.grad(product)(x).tolist() == [1, 1, 1]
    with pytest.raises(pb.MissingRuleError, match="not associative"):
        pb.grad(lambda x: lax.reduce(x, start, lambda a, b: a + b * b, (0,)).real)(x)
