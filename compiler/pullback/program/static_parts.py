"""Static parts of trees: dictionary keys, and the metadata of classes that are pytree nodes.

JAX takes trees for one where their static parts are equal. But 0.0 equals -0.0, and 1 equals True,
and a function may compute something else for each of them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from numbers import Number
from typing import Any

import jax
import numpy as np

from pullback.errors import ArgumentMismatchError
from pullback.frontend.closures.same_rule import Identities

SAFE = frozenset({str, bytes, type(None)})


class ExactTree:
    """A tree that equals another one only if their static parts are the same."""

    __slots__ = ("_hash", "_parts", "tree")

    def __init__(self, tree: Any):
        parts: list[Any] = []

        def add(_: Any, part: Any) -> None:
            if type(part) in (tuple, list):
                parts.extend(part)
            elif part is not None:
                parts.append(part)

        tree.walk(add, id, range(tree.num_leaves))
        self.tree, self._parts = tree, parts
        self._hash = hash(tree)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExactTree):
            return NotImplemented
        if self.tree != other.tree or len(self._parts) != len(other._parts):
            return False
        pairs = self._parts, other._parts
        return all(map(operator.is_, *pairs)) or all(map(_same, *pairs))

    def __hash__(self) -> int:
        return self._hash

    def may_equal_others(self) -> bool:
        """Return whether JAX may find another tree equal that is not."""
        return _may_equal_others(self._parts)

    def holds_arrays(self) -> bool:
        """Return whether a static part is an array."""
        return any(True for _ in _arrays_in(self._parts))


def _may_equal_others(value: Any) -> bool:
    kind = type(value)
    if kind in (tuple, list):
        return any(map(_may_equal_others, value))
    if kind is dict:
        return any(map(_may_equal_others, value.items()))
    return kind not in SAFE and kind.__eq__ is not object.__eq__  # type: ignore[comparison-overlap]


def _same(one: Any, other: Any) -> bool:
    """Return True if equal values are the same, and not merely equal as 1 and True are."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in (tuple, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if kind is dict:
        return _same(list(one.items()), list(other.items()))
    if isinstance(one, (str, bytes, Number)):
        return repr(one) == repr(other)
    return _signature(one) == _signature(other)


def _signature(value: Any) -> Any:
    identities = Identities()
    identities.begin(by_contents=True)
    return identities.rules(None, (value,))


def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ArgumentMismatchError, with the path, where a static part holds an array."""
    if not ExactTree(jax.tree.structure((args, kwargs))).holds_arrays():
        return
    for path, value, part in _nodes((args, kwargs), ()):
        for array in _arrays_in(part):
            raise ArgumentMismatchError(
                f"a static part of the arguments holds an array: {type(array).__name__} of shape "
                f"{array.shape}. Static parts are compared, as by jax.jit, and arrays cannot be",
                where=f"{_spell(path)}{_attribute(value, array)}, of a {type(value).__name__}",
                do="make it a data field of the class, as by jax.tree_util.register_dataclass with "
                "data_fields=[…], or in Equinox without static=True; or hold a tuple of numbers",
            )


def _nodes(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the path, the value and the static part of each node of a tree."""
    children = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    kind_and_part = jax.tree.structure(value, is_leaf=lambda part: part is not value).node_data()
    if kind_and_part is None:
        return
    yield path, value, kind_and_part[1]
    for below, child in children[0]:
        yield from _nodes(child, (*path, *below))


def _arrays_in(part: Any) -> Iterator[Any]:
    if isinstance(part, (tuple, list)):
        for item in part:
            yield from _arrays_in(item)
    elif isinstance(part, dict):
        yield from _arrays_in(tuple(part.values()))
    elif isinstance(part, (jax.Array, np.ndarray)):
        yield part


def _spell(path: tuple[Any, ...]) -> str:
    root = "args" if path[0].idx == 0 else "kwargs"
    return f"{root}{jax.tree_util.keystr(path[1:])}"


def _attribute(value: Any, part: Any) -> str:
    """Return the attribute that holds a static part, as the end of a path; empty without one."""
    names = [name for name, found in getattr(value, "__dict__", {}).items() if found is part]
    return f".{names[0]}" if names else ""
