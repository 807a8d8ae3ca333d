"""Static parts of trees: dictionary keys, and the metadata of classes that are pytree nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from pullback.errors import ArgumentMismatchError


def parts_of(tree: Any) -> list[Any]:
    """Return the static parts of a tree's nodes, those of tuples and lists one by one."""
    parts: list[Any] = []

    def add(_: Any, part: Any) -> None:
        if type(part) in (tuple, list):
            parts.extend(part)
        elif part is not None:
            parts.append(part)

    tree.walk(add, id, range(tree.num_leaves))
    return parts


def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ArgumentMismatchError, with the path, where a static part holds an array."""
    if next(_arrays_in(parts_of(jax.tree.structure((args, kwargs)))), None) is None:
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
