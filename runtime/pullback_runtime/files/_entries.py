"""The named entries of a file: several programs in one module, which share all they can."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError

METADATA = "named_entries"
"""Metadata key: for each entry by name, what differs from the metadata of the first one."""

FIRST = "main"
"""The function of the first entry, and another name of this entry."""

Item = TypeVar("Item")


class EntriesByName(Mapping[str, Item]):
    """The programs of one file by name, in its order; each is made when it is looked up.

    They share the constants of the file.
    """

    def __init__(
        self, names: Sequence[str], make: Callable[[EntriesByName[Item], str], Item]
    ) -> None:
        self._names = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> Item:
        if name not in self._names:
            raise KeyError(f"no entry {name!r}; there are {', '.join(self._names)}")
        return self._make(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Entries({', '.join(self._names)})"


class Placed:
    """Arrays of a file on a device, each put there once, whichever entry asks for it first."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def __call__(
        self, arrays: Sequence[Any], place: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> tuple[Any, ...]:
        """Return the arrays as `place` puts them on the device."""
        with self._lock:
            new = [array for array in arrays if id(array) not in self._found]
            for array, placed in zip(new, place(new), strict=True):
                self._found[id(array)] = array, placed  # who holds the array holds its number
            return tuple(self._found[id(array)][1] for array in arrays)


def names_of(metadata: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of the entries; `main` alone for a file of one program."""
    return tuple(_described(metadata))


def metadata_of(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the metadata that a file of this entry alone would have."""
    own = {**metadata, **_described(metadata)[name]}
    own.pop(METADATA, None)
    return own


def differences(first: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an entry's metadata have unlike those of the first one; None where they lack it.

    `metadata_of` takes it back.
    """
    keys = dict.fromkeys([*first, *own])
    return {key: own.get(key) for key in keys if own.get(key) != first.get(key)}


def find(name: str, names: Sequence[str]) -> str:
    """Return the name of an entry that is asked for, since `main` is the first one as well.

    Raises: ArtifactError, which lists the entries, if there is none of this name.
    """
    if name in names:
        return name
    if name == FIRST:
        return names[0]
    raise ArtifactError(
        f"the file has no entry `{name}`",
        where=f"its entries: {', '.join(names)}",
        do="name one of these, or leave the entry out, for the first one",
    )


def only_main(name: str) -> ArtifactError:
    """Return the error for an entry of what `jax.export` wrote, which holds one program."""
    return ArtifactError(
        f"the file holds a program, which is its @main, and not @{name}",
        do="leave out the entry; what jax.export saved has one program",
    )


def _described(metadata: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    found = (metadata or {}).get(METADATA, {FIRST: {}})
    if isinstance(found, dict) and found and all(isinstance(own, dict) for own in found.values()):
        return found
    raise ArtifactError(f"the file's metadata are damaged: {METADATA}", do=SAVE_AGAIN)
