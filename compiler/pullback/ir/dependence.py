"""Dataflow analysis: what depends on some values, also by conditions, indices and integers.

Activity is about tangents, and ends where there are none. A map is linear in its input only where
all that depends on the input is active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.build import Value
from pullback.ir.purity import is_used
from pullback.ir.regions import APART, BRANCHES, MANUAL, blocks, captures, operations, terminator
from pullback.ir.symbols import called

_OF_SHAPES = frozenset({"chlo.constant_like", "stablehlo.get_dimension_size"})
"""Ops that depend on the shape of an operand alone."""


class Dependence:
    """A forward dataflow analysis through blocks and what they call; no function calls itself.

    The lattice has two points, dependent or not; `_of_results` is the transfer function of an op.
    Loop carries are the least fixpoint. A function is analyzed for each set of its dependent
    arguments.

    Attributes:
      functions: those of the module by name.
      everywhere: what was found so far, in nested blocks too.
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.functions = functions
        self.everywhere: set[Value] = set()
        self._known: dict[tuple[Any, tuple[bool, ...]], list[bool]] = {}

    def spread(self, block: Any, found: set[Value]) -> None:
        """Add to `found` all values of the block that depend on those in it."""
        for operation in operations(block):
            flags = self._of_results(operation, found)
            found.update(r for r, f in zip(operation.results, flags, strict=True) if f)
        self.everywhere |= found

    def _of_results(self, operation: Any, found: set[Value]) -> list[bool]:
        given = [v in found for v in operation.operands]
        if operation.name == "stablehlo.while":
            return self._of_carries(operation, given, found)
        if operation.name in BRANCHES:
            return self._of_branches(operation, given, found)
        if operation.name == MANUAL:
            return self._ends(blocks(operation)[0], given, found)
        if operation.name in _OF_SHAPES:
            return [False]
        function = self.functions.get(called(operation) or "")
        if function is not None and len(function.regions[0].blocks) == 1:
            return self._of_call(function, given)
        captured = captures(operation) if len(operation.regions) else ()
        inside = any(v in found for v in captured)
        if operation.name in APART:
            decides = any(g and k for g, k in zip(given, decide(operation), strict=True))
            return [g or inside or decides for g in given]
        return [inside or any(given)] * len(operation.results)

    def _of_carries(self, operation: Any, carries: list[bool], found: set[Value]) -> list[bool]:
        """Return which carries depend on `found`, a fixpoint: all, if the trip count does."""
        cond, body = blocks(operation)
        while (grown := list(map(max, carries, self._ends(body, carries, found)))) != carries:
            carries = grown
        (goes_on,) = self._ends(cond, carries, found)
        return [c or goes_on for c in carries]

    def _of_branches(self, operation: Any, given: list[bool], found: set[Value]) -> list[bool]:
        """Return which results depend on what is `found`: all, if the choice of the branch does."""
        ends = [self._ends(block, [], found) for block in blocks(operation)]
        return [any(given) or any(row) for row in zip(*ends, strict=True)]

    def _of_call(self, function: Any, given: list[bool]) -> list[bool]:
        key = function, tuple(given)
        if key not in self._known:
            (body,) = blocks(function)
            self._known[key] = self._ends(body, given, set())
        return self._known[key]

    def _ends(self, block: Any, given: Sequence[bool], outside: set[Value]) -> list[bool]:
        """Return which results of a block depend on the arguments `given`, or on `outside`."""
        arguments = zip(block.arguments, given, strict=True)
        found = outside | {a for a, g in arguments if g}
        self.spread(block, found)
        return [v in found for v in terminator(block).operands]


def decide(operation: Any) -> list[bool]:
    """Return which operands decide on the order of the results: those that a sort compares."""
    if not len(operation.regions):
        return [False] * len(operation.operands)
    compared = [is_used(a) for a in blocks(operation)[0].arguments]
    return [x or y for x, y in zip(compared[::2], compared[1::2], strict=True)]
