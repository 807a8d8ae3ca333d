"""Dataflow analysis: what depends on some values, also by conditions, indices and integers.

Activity is about tangents, and ends where there are none. A map is linear in its input only where
all that depends on the input is active.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from pullback.ir.build import Value
from pullback.ir.dataflow import ForwardAnalysis
from pullback.ir.purity import is_used
from pullback.ir.regions import APART, blocks, captures

_OF_SHAPES = frozenset({"chlo.constant_like", "stablehlo.get_dimension_size"})
"""Ops that depend on the shape of an operand alone."""


def dependents(values: Iterable[Value], block: Any, functions: Mapping[str, Any]) -> Set[Value]:
    """Return these values, and all that depend on them in a block and in what it calls.

    Args:
      functions: those of the module by name.
    """
    found = Dependence(functions)
    found.spread(block, values)
    return found.everywhere.keys()


class Dependence(ForwardAnalysis[bool]):
    """Find dependent values: all results of an op are dependent if an operand is."""

    bottom = False

    def spread(self, block: Any, values: Iterable[Value]) -> None:
        """Find what depends on some values of a block, such as its arguments."""
        facts = dict.fromkeys(values, True)
        self.run(block, self.of(block.arguments, facts), facts)

    def join(self, x: bool, y: bool) -> bool:
        return x or y

    def chosen(self, fact: bool, by: bool) -> bool:
        return fact or by

    def transfer(self, operation: Any, given: list[bool], facts: dict[Value, bool]) -> list[bool]:
        name = operation.name
        if name in _OF_SHAPES:
            return [False]
        captured = captures(operation) if len(operation.regions) else ()
        inside = any(v in facts for v in captured)
        if name in APART:
            decides = any(g and k for g, k in zip(given, decide(operation), strict=True))
            return [g or inside or decides for g in given]
        return [inside or any(given)] * len(operation.results)


def decide(operation: Any) -> list[bool]:
    """Return which operands decide on the order of the results: those that a sort compares."""
    if not len(operation.regions):
        return [False] * len(operation.operands)
    compared = [is_used(a) for a in blocks(operation)[0].arguments]
    return [x or y for x, y in zip(compared[::2], compared[1::2], strict=True)]
