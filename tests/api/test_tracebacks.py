"""Frames of ours are hidden where JAX hides its own, by the same switch."""

from __future__ import annotations

import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
import pullback_runtime
from pullback.errors import PullbackError

OURS = tuple(str(Path(package.__file__).parent) for package in (pb, pullback_runtime))
FEW = 3
"""Those that a user has called, and those that call the function of JAX at which it hides."""


def frames_of(call) -> int:
    with pytest.raises((PullbackError, pullback_runtime.PullbackRuntimeError)) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    return sum(frame.filename.startswith(OURS) for frame in frames)


@pytest.fixture
def _filtering():
    old = jax.config.jax_traceback_filtering
    yield
    jax.config.update("jax_traceback_filtering", old)


CALLS = {
    "grad": lambda: pb.grad(lambda x: jax.lax.zeta(x, x))(2.0),
    "scalar": lambda: pb.grad(lambda x: x)(jnp.ones(3)),
    "argument": lambda: pb.trace(jnp.sin)(1.0)(1.0, 2.0),
    "program": lambda: pb.trace(lambda x: jax.lax.zeta(x, x))(2.0).jvp(),
    "transpose": lambda: pb.linear_transpose(jnp.sin, 1.0)(2.0),
}


@pytest.mark.usefixtures("_filtering")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_error_has_few_frames_of_ours(call):
    jax.config.update("jax_traceback_filtering", "auto")
    few = frames_of(call)
    jax.config.update("jax_traceback_filtering", "off")
    assert few <= FEW < frames_of(call)
