"""Contexts of MLIR that modules share, one after the other.

A context keeps each constant, type and location that it has seen as long as it is there. To make
one takes 10 ms, and values of two never mix, so modules share one. Once it has been given much to
keep, the modules to come share another, and it goes with the last module that was made in it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Item = TypeVar("Item")

MOST = 1 << 25
"""Bytes of modules and constants after which a context is replaced; the last one may exceed it."""


class Shared:
    """The MLIR context that new modules share at present, the same for all threads."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._now: Any = None
        self._kept = 0
        _all.append(self)

    def __call__(self) -> Any:
        """Return the context, created on first use and anew once it keeps more than `MOST`."""
        if self._is_needed():
            with self._lock:
                if is_new := self._is_needed():
                    self._now, self._kept = self._create(), 0
            for forget in _forget if is_new else ():
                forget()
        return self._now

    def _is_needed(self) -> bool:
        return self._now is None or self._kept > MOST

    def keeps(self, context: Any, size: int) -> None:
        """Record that `context` keeps `size` more bytes, if it is the shared one."""
        with self._lock:
            self._kept += size if context is self._now else 0


_all: list[Shared] = []
_forget: list[Callable[[], None]] = []


def keeps(context: Any, size: int) -> None:
    """Record that `context` keeps `size` more bytes, if it is a shared one."""
    for shared in _all:
        shared.keeps(context, size)


def forgetting(forget: Callable[[], None]) -> None:
    """Register a function that is called when a context is replaced, to clear caches of it."""
    _forget.append(forget)


def cached(function: Callable[..., Item]) -> Callable[..., Item]:
    """Memoize a function of values in a context, as `functools.cache`, until it is replaced."""
    found = functools.cache(function)
    forgetting(found.cache_clear)
    return found
