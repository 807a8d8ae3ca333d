"""Elementwise ops, shapes, reductions and products in float16 and bfloat16.

Derivatives have the right types, and are near those of float32 at the same point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from tests.rules import cases, cases_chlo, harness
from tests.rules.harness import Arrays
from tests.rules.record import Case

TYPES_OF_THEIR_OWN = {"stablehlo.convert", "stablehlo.dot_general-wider-result"}


def fits(case: Case) -> bool:
    """Whether all its numbers are floats of one type."""
    text = case.function if isinstance(case.function, str) else ""
    is_complex = "complex" in case.label + text or "bfloat16" not in case.dtypes
    return not is_complex and case.rewrite is None and case.name not in TYPES_OF_THEIR_OWN


CASES = [case for case in [*cases.CASES, *cases_chlo.CASES] if fits(case)]


def derivatives(case: Case, args: Arrays, dtype: str) -> list[Arrays]:
    """What f_jvp and f_vjp give in a type."""
    case, args = harness.narrowed(case, args, dtype)
    module = harness.derive(replace(case, second=False), args)
    rng = np.random.default_rng(1)
    tangents = [direction(x, rng) for x in args if harness.inexact(x)]
    cts = [direction(y, rng) for y in harness.output_shapes(module) if harness.inexact(y)]
    calls = [("f_jvp", [*args, *tangents]), ("f_vjp", [*args, *cts])]
    return harness.Program(calls, lambda text: text).run(module)


def direction(like: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers that every type holds exactly."""
    return np.asarray(rng.choice([-1.5, -1.0, 0.5, 1.25], like.shape), like.dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_near_single_precision(case: Case) -> None:
    args = harness.sample(case, np.random.default_rng(0))
    args = [x.astype(jnp.bfloat16).astype(x.dtype) if harness.inexact(x) else x for x in args]
    single = derivatives(case, args, "float32")
    for dtype in ("float16", "bfloat16"):
        half = derivatives(case, args, dtype)
        for found, expected in zip(half, single, strict=True):
            for a, b in zip(found, expected, strict=True):
                check(a, b, dtype)


def check(found: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    """Within 8 units in the last place of the largest element."""
    assert found.dtype == (jnp.dtype(dtype) if expected.dtype == np.float32 else expected.dtype)
    size = max(1.0, float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))))
    tolerance = 8 * float(jnp.finfo(dtype).eps)
    found = found.astype(expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * size)


NARROW = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("dtype", NARROW)
def test_an_element_that_many_updates_exceed_has_no_derivative(dtype: str) -> None:
    """There are more of them than such a type can count."""
    places = np.zeros(300, np.int32)

    def f(x: jax.Array) -> jax.Array:
        return x.at[places].max(jnp.linspace(1, 1.5, 300).astype(dtype))

    x = jnp.asarray([0.5, 1.0], dtype)
    _, tangent = pb.jvp(f, (x,), (jnp.ones_like(x),))
    _, pull = pb.vjp(f, x)
    for found in (tangent, *pull(jnp.ones_like(x))):
        np.testing.assert_array_equal(found.astype(np.float32), [0, 1])


def scattered(x: jax.Array) -> jax.Array:
    return jnp.zeros(1, x.dtype).at[jnp.zeros(x.size, np.int32)].max(x)[0]


@pytest.mark.parametrize("f", [jnp.max, scattered], ids=["reduced", "scattered"])
@pytest.mark.parametrize("dtype", NARROW)
def test_many_elements_that_tie_have_equal_shares(dtype: str, f: Callable[..., Any]) -> None:
    x = jnp.ones(320, dtype)
    share = float(jnp.asarray(1 / 320, dtype))
    np.testing.assert_allclose(pb.grad(f)(x).astype(np.float32), share, rtol=0.01)
    if f is jnp.max:  # the tangents of a scatter are added up in their own type
        _, tangent = pb.jvp(f, (x,), (x,))
        assert tangent == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_is_padded_with_has_the_cotangents_of_the_edge_alone(dtype: str) -> None:
    """They are small beside those of what is padded."""
    x, edge = jnp.ones((64, 64), dtype), jnp.full(64, 2.0**-12, dtype)
    cts = jnp.concatenate([edge[None], x])
    _, pull = pb.vjp(lambda v: jax.lax.pad(x, v, ((1, 0, 0), (0, 0, 0))), jnp.zeros((), dtype))
    assert pull(cts)[0] == 2.0**-6


def test_the_cotangent_of_a_square_may_be_near_the_largest_number() -> None:
    """Twice of it is infinite, and its product with a small factor is not: losses are scaled."""
    x = jnp.array([1e-3, -0.5], jnp.float16)
    _, pull = pb.vjp(lambda x: x * x, x)
    np.testing.assert_array_equal(pull(jnp.full(2, 2.0**15, x.dtype))[0], x * 2 * 2.0**15)
