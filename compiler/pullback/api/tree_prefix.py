"""Flags for the leaves of arguments: the trees of bools that options of JAX's are.

Such a tree is a prefix of the arguments, whose containers only agree with theirs in their number of
children: a tuple may stand for a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
from jax.tree_util import PyTreeDef

from pullback.errors import ArgumentMismatchError


def flags_of(prefix: Any, tree: PyTreeDef, name: str, taker: str) -> tuple[bool, ...]:
    """Return one flag for each leaf of the arguments.

    Args:
      prefix: a bool, or a tree of bools.
      tree: the structure of the arguments.
      name: that of the option.
      taker: the function that has it.

    Raises:
      ArgumentMismatchError: it is not such a tree, or not one of these arguments.
    """
    return tuple(_flags(prefix, tree, f"the {name} argument to {taker}", name))


def _flags(prefix: Any, tree: PyTreeDef, what: str, where: str) -> Iterator[bool]:
    if isinstance(prefix, bool):
        yield from [prefix] * tree.num_leaves
        return
    parts, structure = jax.tree.flatten(prefix, is_leaf=lambda part: part is not prefix)
    children = tree.children()
    if structure == jax.tree.structure(0):
        reason = (
            f"must be a tree of bools, like a tuple-tree (made of bools and tuples only), but "
            f"{where} is {prefix!r} of type {type(prefix).__name__}"
        )
    elif tree.node_data() is None:
        reason = f"{_PREFIX}, but {where} is a container, and stands for a leaf"
    elif len(parts) != len(children):
        reason = (
            f"{_PREFIX}, but {where} has {len(parts)} children while the corresponding container "
            f"has {len(children)}"
        )
    elif (keys := _other_keys(prefix, tree)) is not None:
        reason = (
            f"{_PREFIX}, but {where} is a dict with keys {sorted(prefix)} while the corresponding "
            f"dict has keys {keys}"
        )
    else:
        for i, pair in enumerate(zip(parts, children, strict=True)):
            yield from _flags(*pair, what, f"{where}[{i}]")
        return
    raise ArgumentMismatchError(
        f"{what} {reason}",
        where=where,
        do="give one bool for an argument, or for all of them, or a tuple with one for each part",
    )


_PREFIX = "must form a tree prefix of the corresponding values"


def _other_keys(prefix: Any, tree: PyTreeDef) -> list[Any] | None:
    """Return the keys of a dictionary among the arguments if those of the flags are others."""
    kind, keys = tree.node_data() or (None, ())
    both = type(prefix) is dict and kind is dict
    return list(keys) if both and sorted(prefix) != list(keys) else None


def mirrored(tree: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """Return a tree of these leaves; a container of another kind than Python's becomes a tuple.

    Python's are tuples, lists and dictionaries.
    """
    return _mirrored(tree, iter(leaves))


def _mirrored(tree: PyTreeDef, leaves: Iterator[Any]) -> Any:
    data = tree.node_data()
    if data is None:
        return next(leaves)
    kind, keys = data
    if kind is type(None):
        return None
    children = [_mirrored(child, leaves) for child in tree.children()]
    if kind is dict:
        return dict(zip(keys, children, strict=True))
    return children if kind is list else tuple(children)
