"""Solvers of dataflow analyses, which know control flow: loops, branches, calls, sharded bodies.

An analysis is a lattice (`bottom`, `join`) and a transfer function of the other ops. A
`ForwardAnalysis` goes from operands to results, a `BackwardAnalysis` from results to operands.

Values are forwarded between the operands of an op, the arguments and terminators of its blocks, and
its results. The carries of a loop are a fixpoint, joined over the iterations. A function is
analyzed once for each set of facts of its arguments, or results: a summary.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from pullback.ir.build import Value
from pullback.ir.regions import (
    BRANCHES,
    MANUAL,
    WHILE,
    blocks,
    captures,
    operands_of,
    operations,
    results_of,
)
from pullback.ir.symbols import CALLS, called

CONTROL = frozenset({WHILE, MANUAL, *BRANCHES, *CALLS})
"""Ops that forward values to blocks, of their own or of a function."""

Fact = TypeVar("Fact")


class _Solver(Generic[Fact]):
    """What both directions share.

    A fact is hashable, compared by value, and never changed in place. The lattice has no infinite
    ascending chain.

    Attributes:
      bottom: the fact of a value of which nothing is known.
      everywhere: what was found so far, in nested blocks and in called functions too, joined over
        all calls.
    """

    bottom: Fact

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.functions = functions
        self.everywhere: dict[Value, Fact] = {}
        self._summaries: dict[Any, list[Fact] | None] = {}

    def join(self, x: Fact, y: Fact) -> Fact:
        """Return the least fact that both of these imply."""
        raise NotImplementedError

    def transfer(self, operation: Any, given: list[Fact], facts: dict[Value, Fact]) -> list[Fact]:
        """Return the facts that an op without control flow gives.

        It is asked as well about calls of functions that the module does not have, that have
        several blocks, or that call themselves: for these it has to assume the worst.

        Args:
          given: the facts of its operands (forward), or of its results (backward).
          facts: those of all values so far, such as captured ones.

        Returns:
          The facts of its results (forward), or of its `uses` (backward).
        """
        raise NotImplementedError

    def block(self, block: Any, given: list[Fact], facts: dict[Value, Fact]) -> list[Fact]:
        """Analyze a block with these facts at one end; return those at the other one."""
        raise NotImplementedError

    def run(self, block: Any, given: list[Fact], facts: dict[Value, Fact]) -> list[Fact]:
        """Analyze a block, and enter what is found `everywhere`.

        Args:
          given: the facts of its arguments (forward), or of what it returns (backward).
          facts: those of other values; what is found is added.

        Returns:
          The facts of what it returns (forward), or of its arguments (backward).
        """
        found = self.block(block, given, facts)
        self._join_into(self.everywhere, facts.keys(), facts.values())
        return found

    def body(self, call: Any) -> Any:
        """Return the block of the function that a call calls; None to take the call for an op."""
        function = self.functions.get(called(call) or "")
        found = [] if function is None else list(function.regions[0].blocks)
        return found[0] if len(found) == 1 else None

    def of(self, values: Iterable[Value], facts: dict[Value, Fact]) -> list[Fact]:
        """Return the facts of some values."""
        return [facts.get(v, self.bottom) for v in values]

    def _call(self, call: Any, given: list[Fact]) -> list[Fact] | None:
        """Return the summary of a function; None if it has none (yet, for it calls itself)."""
        block = self.body(call)
        if block is None:
            return None
        key = called(call), *given
        if key not in self._summaries:
            self._summaries[key] = None
            self._summaries[key] = self.run(block, given, {})
        return self._summaries[key]

    def _join_into(self, facts: dict[Value, Fact], values: Any, given: Any) -> None:
        for v, fact in zip(values, given, strict=True):
            if v in facts:
                facts[v] = self.join(facts[v], fact)
            elif fact != self.bottom:
                facts[v] = fact

    def _joined(self, *rows: list[Fact]) -> list[Fact]:
        return [functools.reduce(self.join, column) for column in zip(*rows, strict=True)]


class ForwardAnalysis(_Solver[Fact]):
    """An analysis from operands to results."""

    def chosen(self, fact: Fact, by: Fact) -> Fact:
        """Return the fact of a result of control flow, given that of what decides it.

        That is the index of a branch, or the condition of a loop. By default it does not matter.
        """
        return fact

    def block(self, block: Any, given: list[Fact], facts: dict[Value, Fact]) -> list[Fact]:
        """Analyze a block whose arguments have these facts; return those of what it returns."""
        self._join_into(facts, block.arguments, given)
        *steps, end = operations(block)
        for operation in steps:
            found = self.operation(operation, facts)
            self._join_into(facts, results_of(operation), found)
        return self.of(end.operands, facts)

    def operation(self, operation: Any, facts: dict[Value, Fact]) -> list[Fact]:
        """Return the facts of an op's results."""
        name, given = operation.name, self.of(operands_of(operation), facts)
        if name not in CONTROL:
            return self.transfer(operation, given, facts)
        if name in CALLS:
            found = self._call(operation, given)
            return self.transfer(operation, given, facts) if found is None else found
        if name == MANUAL:
            return self.block(blocks(operation)[0], given, facts)
        if name == WHILE:
            return self.loop(operation, given, facts)
        ends = [self.block(block, [], facts) for block in blocks(operation)]
        return [self.chosen(fact, given[0]) for fact in self._joined(*ends)]

    def loop(self, loop: Any, carries: list[Fact], facts: dict[Value, Fact]) -> list[Fact]:
        """Return the facts of the results of a loop, those of its carries at any iteration."""
        cond, body = blocks(loop)
        while (grown := self._joined(carries, self.block(body, carries, facts))) != carries:
            carries = grown
        (goes_on,) = self.block(cond, carries, facts)
        return [self.chosen(fact, goes_on) for fact in carries]


class BackwardAnalysis(_Solver[Fact]):
    """An analysis from results to operands, such as liveness."""

    def decides(self, operation: Any, given: list[Fact]) -> Fact:
        """Return the fact of what decides control flow, given those of the results."""
        return self.bottom

    def block(self, block: Any, given: list[Fact], facts: dict[Value, Fact]) -> list[Fact]:
        """Analyze a block that returns values with these facts; return those of its arguments."""
        *steps, end = operations(block)
        self._join_into(facts, end.operands, given)
        for operation in reversed(steps):
            self._operation(operation, self.of(results_of(operation), facts), facts)
        return self.of(block.arguments, facts)

    def _operation(self, operation: Any, given: list[Fact], facts: dict[Value, Fact]) -> None:
        name = operation.name
        found: list[Fact] | None = None
        if name in CALLS:
            found = self._call(operation, given)
        elif name == MANUAL:
            found = self.block(blocks(operation)[0], given, facts)
        elif name == WHILE:
            found = self.loop(operation, given, facts)
        elif name in BRANCHES:
            for block in blocks(operation):
                self.block(block, given, facts)
            found = [self.decides(operation, given)]
        if found is None:
            self._join_into(facts, uses(operation), self.transfer(operation, given, facts))
        else:
            self._join_into(facts, operation.operands, found)

    def loop(self, loop: Any, carries: list[Fact], facts: dict[Value, Fact]) -> list[Fact]:
        """Return the facts of the operands of a loop, those of its carries at any iteration."""
        cond, body = blocks(loop)
        while True:
            before = self.block(cond, [self.decides(loop, carries)], facts)
            grown = self._joined(carries, before, self.block(body, carries, facts))
            if grown == carries:
                return carries
            carries = grown


def uses(operation: Any) -> list[Value]:
    """Return the operands of an op, and then the values from outside that its regions use."""
    captured = captures(operation) if len(operation.regions) else []
    return [*operands_of(operation), *captured]
