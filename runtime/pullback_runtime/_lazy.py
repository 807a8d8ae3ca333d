"""What is made when it is asked for, once, whichever thread asks."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


class Lazy(Sequence[Item]):
    """So many items, which `make` makes, all at once and once only, whichever thread asks."""

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
    """Decorator: what a function makes, the same for all threads, also those that ask at once."""
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
