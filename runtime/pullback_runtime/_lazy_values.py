"""Lazy and memoized values that threads share."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


class Lazy(Sequence[Item]):
    """A sequence of `count` items, all made by one call of `make` when the first is read."""

    def __init__(self, count: int, make: Callable[[], Sequence[Item]]) -> None:
        self._count = count
        self._make: Callable[[], Sequence[Item]] | None = make
        self._items: Sequence[Item] = ()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        with self._lock:
            if self._make is not None:
                self._items = tuple(self._make())
                self._make = None  # it may hold what the items were made of
        return self._items[index]


def made_once(make: Callable[[], Item]) -> Callable[[], Item]:
    """Memoize a function without arguments; it runs once even if threads call it at once."""
    lock = threading.Lock()
    found: list[Item] = []

    @functools.wraps(make)
    def get() -> Item:
        if not found:
            with lock:
                if not found:
                    found.append(make())
        return found[0]

    return get


class Recent:
    """A least-recently-used cache of `most` values, which threads share."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Hashable) -> Any:
        """Return the value of a key; None if it was never kept, or was evicted."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def keep(self, key: Hashable, made: Item) -> Item:
        """Keep `made` for a key, unless another thread was first; return what is kept.

        The value that was asked for longest ago is evicted when there are too many.
        """
        with self._lock:
            kept: Item = self._found.setdefault(key, made)
            if len(self._found) > self._most:
                self._found.popitem(last=False)
            return kept

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._found.clear()
