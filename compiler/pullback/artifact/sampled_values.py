"""Whether a function of a module gives what one of JAX gives, as far as samples tell.

A version of JAX may compute a function in another way than the one that wrote a file did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pullback_runtime
from pullback_runtime import call_module

SAMPLES = 64
"""Of each argument, at least."""

LEAST_FINITE = 0.5
"""The share of a function's values that must be numbers, lest NaN be what agrees."""


def agree(
    content: bytes,
    entry: str,
    function: Callable[..., Sequence[Any]],
    given: Sequence[jax.ShapeDtypeStruct],
    platform: str,
) -> bool:
    """Whether @entry of a module and `function` have the same values.

    Raises: what a function raises that cannot run here.
    """
    handle = pullback_runtime.make_handle(content, entry=entry)

    @jax.jit
    def both(*args: Any) -> tuple[list[Any], list[Any]]:
        return call_module(handle, *args), list(function(*args))

    device = jax.local_devices(backend=platform)[0]
    with jax.ensure_compile_time_eval(), jax.default_device(device):
        found = [both(*args) for args in _draws(given)]
    pairs = [pair for ours, theirs in found for pair in zip(ours, theirs, strict=True)]
    finite = [jnp.isfinite(theirs).mean() for _, theirs in pairs]
    return all(_close(*pair) for pair in pairs) and np.mean(finite) >= LEAST_FINITE


def _draws(given: Sequence[jax.ShapeDtypeStruct]) -> Iterator[list[Any]]:
    """Positive numbers, for all of these functions have values there, and random bits."""
    random = np.random.default_rng(0)
    for _ in range(1 + SAMPLES // max(1, *(math.prod(t.shape) for t in given))):
        yield [
            jnp.asarray(random.uniform(0.1, 2.0, t.shape), t.dtype)
            if jnp.issubdtype(t.dtype, jnp.inexact)
            else jnp.asarray(random.integers(0, 1 << 31, t.shape), t.dtype)
            for t in given
        ]


def _close(ours: Any, theirs: Any) -> bool:
    """Whether they are equal but for errors of rounding, which add up."""
    if not jnp.issubdtype(theirs.dtype, jnp.inexact):
        return bool(jnp.array_equal(ours, theirs))
    tolerance = float(jnp.finfo(theirs.dtype).eps) ** (2 / 3)
    return bool(jnp.allclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True))
