"""The one gate to `jaxlib.mlir` and to private names of JAX.

A move of JAX's version touches this package and its twin in the runtime, nothing else. Here is
what everything needs; each of the modules has one idea of JAX's:

    from pullback._jax import ir, jaxprs
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from jax.extend import source_info_util as _source_info
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

from pullback._jax import version as version  # it is checked first
from pullback_runtime._jax import fresh_context, hide_frames
from pullback_runtime.ir._contexts import Item, Shared, cached
from pullback_runtime.ir._erasure import erasing

__all__ = [
    "PassManager",
    "cached",
    "chlo",
    "context",
    "func",
    "ir",
    "of_context",
    "sdy",
    "stablehlo",
    "working_in",
]

# The lines of a program are the user's: ours are as internal to it as JAX's own.
_OURS = os.path.dirname(os.path.dirname(__file__))
_source_info.register_exclusion(os.path.abspath(_OURS))
_source_info.register_exclusion(_OURS)
hide_frames(os.path.abspath(_OURS))


shared = Shared(fresh_context)
"""The MLIR context of new modules: all dialects that JAX's lowering uses.

JAX gives a fresh context per lowering (0.10) or a shared one per thread (0.12); values of different
contexts must not be mixed, so we keep one of our own.
"""


OF_ITS_OWN = 1 << 21
"""Bytes that we count for a context that is made for a single module."""


def context_of_its_own() -> ir.Context:
    """Return a fresh MLIR context for a single module.

    Caches keyed by it are dropped with the shared context; to bring that forward, its size is
    counted there.
    """
    shared.keeps(shared(), OF_ITS_OWN)
    return fresh_context()


class _Working(threading.local):
    context: ir.Context | None = None


_working = _Working()


def context() -> ir.Context:
    """Return the MLIR context that `working_in` has set in this thread, or else the shared one."""
    return _working.context or shared()


class working_in:
    """Enter the MLIR context of a module: types and attributes made by this thread belong to it."""

    __slots__ = ("_context", "_erasing", "_loc", "_outer")

    def __init__(self, module: ir.Module) -> None:
        self._context = module.context
        self._erasing = erasing()
        self._loc = ir.Location.unknown(self._context)

    def __enter__(self) -> None:
        self._outer, _working.context = _working.context, self._context
        self._erasing.__enter__()
        self._loc.__enter__()  # with its context

    def __exit__(self, *failure: Any) -> None:
        self._loc.__exit__(*failure)
        _working.context = self._outer
        self._erasing.__exit__(*failure)


def of_context(function: Callable[..., Item]) -> Callable[..., Item]:
    """Memoize a function of strings and numbers for each MLIR context."""
    known = cached(lambda context, *args: function(*args))

    @functools.wraps(function)
    def found(*args: Any) -> Any:
        return known(_working.context or shared(), *args)

    return found
