"""What is made when it is asked for, and kept, whichever thread asks."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
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


class Recent:
    """What was made for the last so many keys, the same for all threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Hashable) -> Any:
        """What was made for a key; None if that is not known any more."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def keep(self, key: Hashable, made: Item) -> Item:
        """What is kept for the key: this, unless another thread was first.

        What was asked for longest ago makes room.
        """
        with self._lock:
            kept: Item = self._found.setdefault(key, made)
            if len(self._found) > self._most:
                self._found.popitem(last=False)
            return kept

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._found.clear()
