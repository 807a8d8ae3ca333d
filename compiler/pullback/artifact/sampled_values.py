"""Whether a function of a module gives what one of JAX gives, as far as samples tell.

A version of JAX may compute a function in another way than the one that wrote a file did.
"""

from __future__ import annotations

import itertools
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

POSITIVE = (0.1, 0.9), (0.5, 20.0)
"""Ranges of samples. All of these functions have values in the first."""

ANY = (0.0, 0.0), (-3.0, 3.0), (-40.0, 40.0)
"""Further ones, but for samplers: a loop until a sample is accepted may not end."""


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
    with (
        jax.ensure_compile_time_eval(),
        jax.default_device(device),
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.transfer_guard("allow"),
    ):
        for number, args in enumerate(_draws(given)):
            ours, theirs = both(*args)
            if number == 0 and np.mean([_share_of_numbers(v) for v in theirs]) < LEAST_FINITE:
                return False
            if not all(map(_close, ours, theirs)):
                return False
    return True


def _draws(given: Sequence[jax.ShapeDtypeStruct]) -> Iterator[list[Any]]:
    """Numbers of one range after the other, and random bits."""
    random = np.random.default_rng(0)
    has_bits = not all(jnp.issubdtype(t.dtype, jnp.inexact) for t in given)
    ranges = POSITIVE if has_bits else (*POSITIVE, *ANY)
    more = SAMPLES // max(1, *(math.prod(t.shape) for t in given))
    for limits in itertools.islice(itertools.cycle(ranges), len(ranges) + more):
        yield [
            jnp.asarray(random.uniform(*limits, t.shape), t.dtype)
            if jnp.issubdtype(t.dtype, jnp.inexact)
            else jnp.asarray(random.integers(0, 1 << 31, t.shape), t.dtype)
            for t in given
        ]


def _share_of_numbers(values: Any) -> float:
    return float(jnp.isfinite(values).mean())


def _close(ours: Any, theirs: Any) -> bool:
    """Whether they are equal but for errors of rounding, which add up.

    What is no number may be infinite or NaN: versions of JAX differ in this, as at 0 in `expi`.
    """
    if not jnp.issubdtype(theirs.dtype, jnp.inexact):
        return bool(jnp.array_equal(ours, theirs))
    tolerance = float(jnp.finfo(theirs.dtype).eps) ** (2 / 3)
    ours, theirs = (jnp.where(jnp.isfinite(each), each, jnp.nan) for each in (ours, theirs))
    return bool(jnp.allclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True))
