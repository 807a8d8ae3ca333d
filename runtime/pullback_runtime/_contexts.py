"""Contexts of MLIR that modules share, one after the other.

A context keeps each constant, type and location that it has seen as long as it is there. To make
one takes 10 ms, and values of two never meet, so modules share one. Once it has been given much to
keep, the modules to come share another, and it goes with the last module that was made in it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Item = TypeVar("Item")

MOST = 1 << 25
"""Bytes of modules and of constants that one context is given to keep, and what comes last."""


class Shared:
    """The context that modules share now, the same for all threads."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._now: Any = None
        self._kept = 0
        _all.append(self)

    def __call__(self) -> Any:
        """The context; it is made when it is first asked for, and again when it keeps much."""
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
        """Notes that a context keeps so many bytes more, if it is this one."""
        with self._lock:
            self._kept += size if context is self._now else 0


_all: list[Shared] = []
_forget: list[Callable[[], None]] = []


def keeps(context: Any, size: int) -> None:
    """Notes that a context, which may be a shared one, keeps so many bytes more."""
    for shared in _all:
        shared.keeps(context, size)


def forgetting(forget: Callable[[], None]) -> None:
    """Lets this be called where a context is not shared any more, to drop what is of it."""
    _forget.append(forget)


def cached(function: Callable[..., Item]) -> Callable[..., Item]:
    """`functools.cache` of what is of a context, for as long as it is shared."""
    found = functools.cache(function)
    forgetting(found.cache_clear)
    return found
