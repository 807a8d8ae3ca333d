"""Read from the two halves of a derivative what is stored between them, and what is recomputed.

The residuals are the results that the forward half returns beside those of the function; each is
followed through calls, loops and branches to the op that made it.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pullback._jax import ir, remat
from pullback.autodiff.zeros import is_zero_constant
from pullback.ir import build, ops, placements
from pullback.ir.build import Value
from pullback.ir.costs import runs_inside
from pullback.ir.dependence import dependents
from pullback.ir.locations import user_line_of
from pullback.ir.regions import BRANCHES, MANUAL, WHILE, blocks, operations, terminator
from pullback.ir.symbols import CALL, called, callee, functions
from pullback.ir.traits import VIEW
from pullback.ir.while_loops import read_loop
from pullback.program.record import Record
from pullback.program.residual_table import Recomputed, Residual, ResidualTable
from pullback_runtime.call._arguments import spell

UNKNOWN = "no line of the user's"


def residual_table(forward: Record, linear: Record, count: int) -> ResidualTable:
    """Read the table of a split.

    Args:
      forward: `args -> (out, residuals)`.
      linear: `(residuals, cotangents) -> cotangents`.
      count: how many residuals there are.
    """
    table = functions(forward.module)
    (block,) = blocks(table["main"])
    *_, end = operations(block)
    results, outs = list(end.operands), len(end.operands) - count
    hidden = len(forward.constants)
    constants = [f"constant {i}" for i in range(hidden)]
    names = dict(zip(block.arguments, [*constants, *forward.arg_paths], strict=True))
    names |= dict.fromkeys(results[:outs], "")
    search = _Origins(table, names)
    stored = map(search.of, results[outs:], forward.out_avals[outs:])
    return ResidualTable(tuple(stored), tuple(_recomputed(table, functions(linear.module), count)))


@dataclass(frozen=True)
class _Entered:
    """A call that the search is inside of, such as that of a checkpoint."""

    operands: Sequence[Value]
    line: str
    is_checkpoint: bool


class _Origins:
    """The search for the ops that made residuals.

    Args:
      table: the functions of the module.
      names: of arguments of `@main`; results of the function have none.
    """

    def __init__(self, table: dict[str, Any], names: dict[Value, str]) -> None:
        self._table = table
        self._names = names

    def of(self, v: Value, aval: jax.ShapeDtypeStruct) -> Residual:
        """Describe a residual of this shape and dtype."""
        is_result = self._names.get(v) == ""
        free = "a result of the function" if is_result else ""
        size = None if -1 in build.shape(v) else build.size_in_bytes(v.type)
        return self._follow(v, Residual(spell(aval), size, "", "", free=free), ())

    def _follow(self, v: Value, shown: Residual, calls: tuple[_Entered, ...]) -> Residual:
        if isinstance(v, ir.BlockArgument):
            return self._argument(v, shown, calls)
        operation = v.owner.operation
        index = list(operation.results).index(v)
        name = called(operation)
        if operation.name == WHILE:
            return self._carry(operation, index, shown, calls)
        if operation.name == CALL and name in self._table:
            function = self._table[name]
            is_checkpoint = remat.CHECKPOINT in function.attributes
            call = _Entered(list(operation.operands), self._line(operation, calls), is_checkpoint)
            (block,) = blocks(function)
            return self._follow(terminator(block).operands[index], shown, (*calls, call))
        if operation.name in BRANCHES:
            ends = [terminator(block).operands[index] for block in blocks(operation)]
            made = [end for end in ends if not is_zero_constant(end)]
            if len(made) == 1:
                return self._follow(made[0], shown, calls)
        on_host = placements.is_placed(v)
        if on_host or ops.composite_name(operation) == remat.SAVED:
            kept = next((_place(call.line) for call in reversed(calls) if call.is_checkpoint), "")
            shown = dataclasses.replace(shown, kept=kept, on_host=on_host or shown.on_host)
            return self._follow(operation.operands[index], shown, calls)
        op = name if name is not None else operation.name.partition(".")[2]
        return dataclasses.replace(shown, op=op, line=self._line(operation, calls))

    def _argument(self, v: Value, shown: Residual, calls: tuple[_Entered, ...]) -> Residual:
        owner = v.owner.owner.operation
        if owner.name == WHILE:
            loop = read_loop(owner)
            if loop.is_invariant(v.arg_number):
                return self._follow(loop.inits[v.arg_number], shown, calls)
            return dataclasses.replace(shown, op="carry", line=self._line(owner, calls))
        if owner.name == MANUAL:
            return self._follow(owner.operands[v.arg_number], shown, calls)
        if calls:
            return self._follow(calls[-1].operands[v.arg_number], shown, calls[:-1])
        free = "" if shown.loops else "an argument"
        return dataclasses.replace(shown, op="argument", line=self._names[v], free=free)

    def _carry(
        self, operation: Any, index: int, shown: Residual, calls: tuple[_Entered, ...]
    ) -> Residual:
        """Follow a carry that gets a slice per iteration to that; any other one is the loop's."""
        loop = read_loop(operation)
        line = self._line(operation, calls)
        argument, given = loop.body.arguments[index], loop.yields[index]
        is_stack = (
            not isinstance(given, ir.BlockArgument)
            and given.owner.name == "stablehlo.dynamic_update_slice"
            and given.owner.operands[0] == argument
        )
        if not is_stack:
            return dataclasses.replace(shown, op="while", line=line)
        times = "" if loop.slots is None else f"{loop.slots} × "
        shown = dataclasses.replace(shown, loops=(*shown.loops, f"{times}{_place(line)}"))
        return self._follow(_behind_views(given.owner.operands[1]), shown, calls)

    @staticmethod
    def _line(operation: Any, calls: tuple[_Entered, ...]) -> str:
        return user_line_of(operation) or (calls[-1].line if calls else UNKNOWN)


def _behind_views(v: Value) -> Value:
    """Return the value that a chain of reshapes, and the like, of one operand shows."""
    while not isinstance(v, ir.BlockArgument):
        operation = v.owner.operation
        if operation.name not in VIEW or len(operation.operands) != 1:
            break
        v = operation.operands[0]
    return v


def _recomputed(
    forward: dict[str, Any], linear: dict[str, Any], residuals: int
) -> Iterator[Recomputed]:
    """Yield what the linear program computes of residuals alone as the forward one has done."""
    known = {_mark(op) for function in forward.values() for op in _all(function)}
    (block,) = blocks(linear["main"])
    moving = dependents(list(block.arguments)[residuals:], block, linear)
    found: dict[tuple[str, str], list[int]] = collections.defaultdict(lambda: [0, 0])
    for op, runs in _runs(block, linear, 1):
        if op.name in VIEW or not _computes(op) or any(r in moving for r in op.results):
            continue
        if _mark(op) in known:
            shapes = [build.shape(r) for r in op.results]
            entry = found[op.name.partition(".")[2], user_line_of(op) or UNKNOWN]
            entry[0] += runs
            entry[1] += runs * sum(math.prod(max(size, 1) for size in s) for s in shapes)
    for (op, line), (runs, elements) in found.items():
        yield Recomputed(op, line, runs, elements)


def _computes(operation: Any) -> bool:
    """Return True if an op computes with floats: the counters of loops are not worth a line."""
    return any(build.inexact(v.type) for v in [*operation.operands, *operation.results])


def _place(line: str) -> str:
    """Return the file and the number of a line, without its function."""
    return line.partition(", in ")[0]


def _mark(operation: Any) -> tuple[Any, ...]:
    """Return what an op has in common with a copy of it, on other values, in the other half."""
    constants = [_is_constant(_behind_views(v)) for v in operation.operands]
    return operation.name, str(operation.location), *constants


def _is_constant(v: Value) -> bool:
    return not isinstance(v, ir.BlockArgument) and v.owner.name == "stablehlo.constant"


def _all(root: Any) -> Iterator[Any]:
    for block in blocks(root):
        for operation in operations(block):
            yield operation
            yield from _all(operation)


def _runs(block: Any, table: dict[str, Any], runs: int) -> Iterator[tuple[Any, int]]:
    """Yield the ops of a block, and of what it calls, with how often each runs."""
    for operation in operations(block)[:-1]:
        name = callee(operation) if operation.name == CALL else None
        if name in table:
            yield from _runs(blocks(table[name])[0], table, runs)
        elif times := len(operation.regions) and runs_inside(operation):
            inside = blocks(operation)
            for inner in inside[1:] if operation.name == WHILE else inside:
                yield from _runs(inner, table, runs * times)
        elif ops.view(operation) is None:
            yield operation, runs
