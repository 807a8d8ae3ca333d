"""What a `select` does not take has no derivative, also where its slope is infinite or NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import pullback as pb
from pullback import artifact

X = np.array([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])
COLUMNS = np.array([0.0, 0.2, 2.0])


def safe(function: Callable[[Any], Any], instead: float = 1.0) -> Callable[[Any], Any]:
    """Of positive arguments; others get another one first, as JAX wants it."""
    return lambda x: function(jnp.where(x > 0, x, instead))


CHOICES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "square root": (
        lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0),
        lambda x: jnp.where(x > 0, safe(jnp.sqrt)(x), 0.0),
    ),
    "chain": (
        lambda x: jnp.where(x > 0, jnp.sin(jnp.log(x) * x), x**2),
        lambda x: jnp.where(x > 0, safe(lambda x: jnp.sin(jnp.log(x) * x))(x), x**2),
    ),
    "nested": (
        lambda x: jnp.where(x > 0, jnp.where(x > 1, 1 / (x - 1), jnp.log(x)), jnp.exp(x)),
        lambda x: jnp.where(
            x > 0,
            jnp.where(x > 1, 1 / (jnp.where(x > 1, x, 2.0) - 1), safe(jnp.log)(x)),
            jnp.exp(x),
        ),
    ),
    "both": (
        lambda x: jnp.where(x == 0, 1.0, jnp.sin(x) / x) + jnp.where(x > 0, x * jnp.log(x), -x),
        lambda x: (
            jnp.where(x == 0, 1.0, jnp.sin(x) / jnp.where(x == 0, 1.0, x))
            + jnp.where(x > 0, safe(lambda x: x * jnp.log(x))(x), -x)
        ),
    ),
    "shared": (
        lambda x: (lambda q: jnp.where(x > 0, jnp.where(x > 1, q, q * q) * x, x))(1 / x),
        lambda x: (lambda q: jnp.where(x > 0, jnp.where(x > 1, q, q * q) * x, x))(
            1 / jnp.where(x > 0, x, 1.0)
        ),
    ),
    "repeated divisor": (
        lambda x: jnp.where(x[:, None] > COLUMNS, (1 + COLUMNS) / x[:, None], 0),
        lambda x: jnp.where(x[:, None] > COLUMNS, (1 + COLUMNS) / safe(abs)(x)[:, None], 0),
    ),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CHOICES)
def test_what_is_not_taken_has_no_derivative(name: str) -> None:
    """The reference says the same by arguments that are harmless, as JAX needs it."""
    f, harmless = (lambda x, g=g: jnp.sum(jnp.sin(g(x))) for g in CHOICES[name])
    expected, second = jax.grad(harmless)(X), jax.hessian(harmless)(X)
    program = pb.trace(f)(X)
    for found in (
        pb.grad(f)(X),
        pb.trace(f)(X).grad()(X),
        pb.load(artifact.serialize(program)).grad()(X),
        jax.vmap(pb.grad(f))(X[:, None])[:, 0],
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pb.hessian(f)(X), second, rtol=1e-10, atol=1e-12)
    reverse_twice = jax.vmap(lambda ct: pb.vjp(pb.grad(f), X)[1](ct)[0])(np.eye(len(X)))
    np.testing.assert_allclose(reverse_twice, second, rtol=1e-10, atol=1e-12)
    in_a_loop = pb.grad(lambda x: jax.lax.scan(lambda c, x: (c + f(x[None]), None), 0.0, x)[0])
    np.testing.assert_allclose(in_a_loop(X), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("float64")
def test_the_transpose_of_what_is_chosen() -> None:
    """A linear function, whose factor is infinite where it is not taken."""

    def f(t):
        return jnp.where(X != 0, t / X, t)

    (found,) = pb.linear_transpose(f, X)(np.ones_like(X))
    np.testing.assert_allclose(found, np.where(X != 0, 1 / np.where(X != 0, X, 1), 1), rtol=1e-12)


def test_a_rule_with_a_guard() -> None:
    norm = jax.custom_jvp(lambda x: jnp.sqrt(jnp.sum(x**2)))

    @norm.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        size = norm(x)
        slope = jnp.sum(x * t) / size
        return size, jax.lax.select(size == 0, jnp.zeros_like(slope), slope)

    assert pb.grad(norm)(jnp.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(pb.grad(norm)(jnp.array([0.0, 3.0, 4.0])), [0, 0.6, 0.8], rtol=1e-6)


def test_numbers_that_two_choices_meet_in_are_added_once() -> None:
    def f(x, y):
        both = jnp.sin(x) * y
        return jnp.sum(jnp.where(x > 0, both, 2 * both) + jnp.where(y > 0, both, jnp.abs(both)))

    x, y = jnp.array([-1.0, 0.3, 0.7]), jnp.array([0.5, -2.0, 3.0])
    for ours, theirs in zip(pb.grad(f, (0, 1))(x, y), jax.grad(f, (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


EXPORTED: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), [-1.5, 0.0, 0.5, 3.0]),
    "erfc": (jax.scipy.special.erfc, [-2.0, 0.0, 0.5, 3.0]),
    "erf_inv": (jax.scipy.special.erfinv, [-0.9, 0.0, 0.5]),
    "ndtr": (jax.scipy.special.ndtr, [-1.0, 0.0, 2.0]),
    "log_ndtr": (jax.scipy.special.log_ndtr, [-1.0, 0.0, 2.0]),
    "gammaln": (jax.scipy.special.gammaln, [0.5, 1.0, 2.0, 3.0, 20.0]),
    "digamma": (jax.scipy.special.digamma, [0.5, 1.0, 3.0]),
    "betainc": (lambda x: jax.scipy.special.betainc(1.0, 2.0, x), [0.1, 0.5, 0.9]),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_expansions_that_jax_exported_have_gradients(name: str) -> None:
    """They compute what is not taken, too: zero times its slope was NaN."""
    if name == "gammaln" and jax.__version_info__ >= (0, 12):
        pytest.skip("JAX 0.12 computes it from the bits of the number")
    f, points = EXPORTED[name]
    x = jnp.array(points)
    program = pb.load(export.export(jax.jit(f))(x).serialize())
    _, (found,) = program.vjp()(x, jnp.ones_like(x))
    np.testing.assert_allclose(found, jax.vjp(f, x)[1](jnp.ones_like(x))[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ct", [40000.0, -40000.0])
@pytest.mark.parametrize("x", [-2.0, 1.0])
def test_large_cotangents_of_a_hyperbolic_tangent_stay_finite(x: float, ct: float) -> None:
    """t (1 + y) is infinite in 16 bits."""
    (found,) = pb.vjp(jnp.tanh, jnp.float16(x))[1](jnp.float16(ct))
    np.testing.assert_allclose(float(found), ct / np.cosh(x) ** 2, rtol=5e-3)


def test_large_cotangents_of_a_repeated_divisor_stay_finite() -> None:
    """What is divided, times them, is infinite in 16 bits: the sum of that, divided, would be."""
    x, y = jnp.full((2, 3), 300, jnp.float16), jnp.full(2, 10, jnp.float16)
    ct = jnp.full_like(x, 5000)
    (found,) = pb.vjp(lambda y: x / y[:, None], y)[1](ct)
    np.testing.assert_allclose(found, [-45000.0] * 2, rtol=5e-3)


def test_a_small_divisor_of_zero_in_half_precision() -> None:
    """Its reciprocal is infinite in 16 bits, and so is the square of one that is not as small."""
    zero, tenth = jnp.float16(0), jnp.float16(0.1)
    assert pb.vjp(lambda y: zero / y, jnp.float16(1e-5))[1](tenth) == (0,)
    second = pb.jvp(pb.grad(lambda x, y: x / y, 1), (zero, jnp.float16(0.01)), (tenth, zero))[1]
    np.testing.assert_allclose(float(second), -1000, rtol=5e-3)


def test_the_second_derivative_of_a_small_root_in_half_precision() -> None:
    """The derivative of a reciprocal is infinite; what it is multiplied by makes it small again."""
    x, one = jnp.float16(1e-4), jnp.float16(1)
    scaled = pb.grad(lambda x, scale: jnp.sqrt(x) * scale)
    for scale in (0.0, 1e-3):
        found = pb.jvp(lambda x, scale=scale: scaled(x, jnp.float16(scale)), (x,), (one,))[1]
        np.testing.assert_allclose(float(found), -scale / 4 * 1e6, rtol=5e-3)
