"""Compute with constants: XLA evaluates what depends on them alone, and compiles little else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def lower(function: Callable[..., Any], *args: Any) -> jax.stages.Lowered:
    """Lower a call of a function on these arrays to a module that takes no arguments.

    The function sees tracers, as under `jax.jit`. Its ops have constant operands in the module, so
    XLA's evaluator takes the place of kernels, whose compilation is most of the time of a test.
    """
    inner = jax.jit(function)
    return jax.jit(lambda: inner(*args)).lower()


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function gives for these arrays; see `lower`."""
    return lower(function, *args).compile()()
