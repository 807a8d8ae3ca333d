"""Trees as keys, equal only where their static parts are the same.

JAX takes trees for one where their static parts are equal. But 0.0 equals -0.0, and 1 equals True,
and a function may compute something else for each of them.
"""

from __future__ import annotations

import operator
from numbers import Number
from typing import Any

from pullback.frontend.closures.same_rule import Identities
from pullback.program.static_parts import parts_of

SAFE = frozenset({str, bytes, type(None)})


class ExactTree:
    """A tree that equals another one only if their static parts are the same."""

    __slots__ = ("_hash", "_parts", "tree")

    def __init__(self, tree: Any):
        self.tree, self._parts = tree, parts_of(tree)
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


def may_equal_others(tree: Any) -> bool:
    """Return whether JAX may find another tree equal to this one that is not the same."""
    return _may_equal_others(parts_of(tree))


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
