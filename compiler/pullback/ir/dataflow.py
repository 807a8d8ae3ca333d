"""Solve dataflow analyses through control flow: loops, branches, calls, sharded bodies.

An analysis is a lattice (`bottom`, `join`) and a transfer function of the other ops. A
`ForwardAnalysis` goes from operands to results, a `BackwardAnalysis` from results to operands; a
`Query` decides whether something holds of one value, from what that needs alone.

Values are forwarded between the operands of an op, the arguments and terminators of its blocks, and
its results. The carries of a loop are a fixpoint, joined over the iterations. A function is
analyzed once for each set of facts of its arguments, or results: a summary.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pullback._jax import ir
from pullback.ir.build import Value
from pullback.ir.regions import (
    APART,
    BRANCHES,
    MANUAL,
    WHILE,
    blocks,
    captures,
    operands_of,
    operations,
    results_of,
    terminator,
)
from pullback.ir.symbols import CALLS, called

CONTROL = frozenset({WHILE, MANUAL, *BRANCHES, *CALLS})
"""List ops that forward values to blocks, of their own or of a function."""

Fact = TypeVar("Fact")


class _Solver(Generic[Fact]):
    """Solve an analysis in either direction.

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

    def _resumed(self, body: Any, carries: list[Fact], facts: dict[Value, Fact]) -> list[Fact]:
        """Return carries to begin with: facts only grow, so the last fixpoint is part of the next.

        A loop would else begin anew in each iteration over the loops around it: 2^depth times.
        """
        return self._joined(carries, self.of(body.arguments, facts))

    def _join_into(self, facts: dict[Value, Fact], values: Any, given: Any) -> None:
        for v, fact in zip(values, given, strict=True):
            if v in facts:
                facts[v] = self.join(facts[v], fact)
            elif fact != self.bottom:
                facts[v] = fact

    def _joined(self, *rows: list[Fact]) -> list[Fact]:
        return [functools.reduce(self.join, column) for column in zip(*rows, strict=True)]


class ForwardAnalysis(_Solver[Fact]):
    """Analyze from operands to results."""

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
        carries = self._resumed(body, carries, facts)
        while (grown := self._joined(carries, self.block(body, carries, facts))) != carries:
            carries = grown
        (goes_on,) = self.block(cond, carries, facts)
        return [self.chosen(fact, goes_on) for fact in carries]


class BackwardAnalysis(_Solver[Fact]):
    """Analyze from results to operands, as liveness does."""

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
        carries = self._resumed(body, carries, facts)
        while True:
            before = self.block(cond, [self.decides(loop, carries)], facts)
            grown = self._joined(carries, before, self.block(body, carries, facts))
            if grown == carries:
                self._join_into(facts, body.arguments, carries)
                return carries
            carries = grown


def uses(operation: Any) -> list[Value]:
    """Return the operands of an op, and then the values from outside that its regions use."""
    captured = captures(operation) if len(operation.regions) else []
    return [*operands_of(operation), *captured]


# ------------------------------------------------------------------------------- on demand

Known = dict[Value, bool]
Sources = tuple[Sequence[Value], bool]
"""Name the values that decide about another, and whether it is enough that it holds of one."""

YES: Sources = [], False
NO: Sources = [], True

MOST_VALUES = 1000
"""Bounds the steps of a query."""

DEEPEST = 30
"""Bounds the loops and calls, nested or one after another, that a query goes through."""


def decided(v: Value, known: Known, sources: Callable[[Value], Sources]) -> bool:
    """Return whether something holds of a value, and add the answers for others to `known`.

    An explicit worklist: programs are too deep for recursion.
    """
    todo = [] if v in known else [(v, *sources(v))]
    while todo:
        x, values, one_is_enough = todo[-1]
        found = [known.get(y) for y in values]
        if None in found and one_is_enough not in found:
            missing = values[found.index(None)]
            todo.append((missing, *sources(missing)))
        else:
            known[x] = one_is_enough if one_is_enough in found else not one_is_enough
            todo.pop()
    return known[v]


class Query:
    """Ask whether something holds of a value: of each value that it may be forwarded.

    Loop carries are the greatest fixpoint: it holds until an iteration shows otherwise. Where that
    takes too many steps, the answer is no.
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.functions = functions
        self.steps = MOST_VALUES
        self._depth = 0
        self._calls: dict[Any, tuple[Any, Known]] = {}  # by the block of the function

    def holds(self, v: Value, known: Known) -> bool:
        """Return the answer for a value, given those for others in `known`; add answers there."""
        return decided(v, known, lambda x: self._sources(x, known))

    def sources(self, v: Value, known: Known) -> Sources:
        """Return what decides about a value, the transfer function; here, of control flow."""
        if isinstance(v, ir.BlockArgument):
            operation = v.owner.owner.operation
            if operation.name == WHILE:
                return self._of_carry(operation, v.arg_number, known)
            return ([operation.operands[v.arg_number]], False) if operation.name == MANUAL else NO
        operation, index = v.owner.operation, v.result_number
        name = operation.name  # the view of a composite has a name of its own
        if name == WHILE:
            return self._of_carry(operation, index, known)
        if name == MANUAL or name in BRANCHES:
            return [terminator(block).operands[index] for block in blocks(operation)], False
        if name in APART:
            return [operation.operands[index]], False
        return self._of_call(operation, index, known) if name in CALLS else NO

    def needed(self, call: Any, block: Any) -> Iterable[Value]:
        """Return the arguments of a function of which it has to hold to look into a call."""
        return ()

    def _sources(self, v: Value, known: Known) -> Sources:
        self.steps -= 1
        if self.steps < 0:
            return NO
        if isinstance(v, ir.BlockArgument) and v.owner in self._calls:
            operands, outside = self._calls[v.owner]
            return YES if self.holds(operands[v.arg_number], outside) else NO
        values, one_is_enough = self.sources(v, known)
        return values[::-1], one_is_enough  # the last term of a sum is the newest: seldom zero

    def _of_carry(self, loop: Any, index: int, known: Known) -> Sources:
        """Decide a carry: it holds at first, and each iteration leaves all such carries so."""
        inits, body = list(loop.operands), loop.regions[1].blocks[0]
        arguments, end = list(body.arguments), terminator(body)
        yields = list(end.operands)
        if end.name != "stablehlo.return" or not len(yields) == len(inits) == len(arguments):
            return NO  # the loop is being made, or rewritten
        if yields[index] == arguments[index]:
            return [inits[index]], False
        with self._deeper() as is_allowed:
            found = [is_allowed and self.holds(init, known) for init in inits]
            before: list[bool] = []
            while found[index] and found != before:
                before, carries = found, {**known, **dict(zip(arguments, found, strict=True))}
                found = [f and self.holds(v, carries) for v, f in zip(yields, found, strict=True)]
        return YES if found[index] else NO

    def _of_call(self, call: Any, index: int, known: Known) -> Sources:
        """Decide a result of a call by that of the function, given what holds of the operands.

        Only operands that it depends on are looked at: calls have thousands, and as many results.
        """
        function = self.functions.get(called(call) or "")
        if function is None or not len(function.regions[0].blocks):
            return NO
        block = function.regions[0].blocks[0]
        with self._deeper() as is_allowed, self._called(block, call.operands, known):
            inside: Known = {}
            found = (
                is_allowed
                and all(self.holds(argument, inside) for argument in self.needed(call, block))
                and self.holds(terminator(block).operands[index], inside)
            )
        return YES if found else NO

    @contextlib.contextmanager
    def _called(self, block: Any, operands: Any, outside: Known) -> Iterator[None]:
        """Run the body with the arguments of a function standing for these operands of a call."""
        before = self._calls.get(block)
        self._calls[block] = operands, outside
        yield
        if before is None:
            del self._calls[block]
        else:
            self._calls[block] = before

    @contextlib.contextmanager
    def _deeper(self) -> Iterator[bool]:
        """Run the body one level deeper; yield False if that is too deep."""
        self._depth += 1
        try:
            yield self._depth < DEEPEST
        finally:
            self._depth -= 1
