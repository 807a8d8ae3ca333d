"""Read a module as rows of text, and say which op, value and origin each row has.

Each op is given a location of its own, beside the one that it has: `fused["program:17", …]`. What
passes make of an op has its location, so the modules derived from this one say of each op which ops
it came from, exactly, also where many ops have the same line.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from pullback._jax import ir
from pullback._jax.source_info import Frame
from pullback.ir import costs, ops
from pullback.ir.build import Value
from pullback.ir.dependence import dependents
from pullback.ir.locations import is_installed, of_users
from pullback.ir.modules import MOST_ELEMENTS, text_of
from pullback.ir.printed import Printed
from pullback.ir.regions import blocks
from pullback.ir.symbols import FUNC, called, functions as functions_of


@dataclass
class ListedOp:
    """An op of a listing.

    Attributes:
      name: such as `stablehlo.add`.
      function: the function that it is in, or that it is.
      depth: how many regions it is in; that of the function counts.
      operands: numbers of the values that it takes.
      results: numbers of its results, and of the arguments of its blocks.
      origins: for each earlier listing, the ops that it was made of; the innermost first.
      places: file, line and function of the user's lines that it comes from, innermost first.
      rows: its first row and its last one; they differ for an op with regions that are shown.
      flops: of one run.
      bytes: of one run.
      runs: how often one run of `@main` runs it.
      callee: the function that computes its results, if it is a call.
      rules: of a derivative op, the functions of its rules by the names of their attributes.
    """

    name: str
    function: str
    depth: int
    operands: list[int]
    results: list[int]
    origins: dict[str, list[int]] = field(default_factory=dict)
    places: tuple[Frame, ...] = ()
    rows: tuple[int, int] = (-1, -1)
    flops: int = 0
    bytes: int = 0
    runs: int = 0
    callee: str | None = None
    rules: dict[str, str] | None = None


@dataclass
class Listing:
    """A module as text, with what is known of it.

    Attributes:
      stage: its name, as `pullback dump --stage` has it.
      rows: its text by lines, without locations; large constants are elided.
      ops: in the order in which they stand.
      values: the name of each value in the text.
      makers: for each value the op that makes it, or whose block has it as an argument.
      carriers: the values that depend on a tangent or cotangent among the arguments of `@main`.
    """

    stage: str
    rows: list[str]
    ops: list[ListedOp]
    values: list[str]
    makers: list[int]
    carriers: set[int]

    @functools.cached_property
    def functions(self) -> dict[str, int]:
        """The op that each function is, by name."""
        return {op.function: i for i, op in enumerate(self.ops) if op.name == FUNC}

    def lines(self, program: Listing) -> list[tuple[Frame, ...]]:
        """Return the lines of each op; an op without one has those of what it was made of.

        Failing that, it has the line of the calls of its function, where that is one. Lines of
        installed packages that only call the innermost one are left out.

        Args:
          program: the listing of the first stage.
        """
        return [self._lines_of(number, program) for number in range(len(self.ops))]

    def _lines_of(self, number: int, program: Listing) -> tuple[Frame, ...]:
        op = self.ops[number]
        if op.places:
            own = (f for i, f in enumerate(op.places) if i == 0 or not is_installed(f[0]))
            return tuple(own)
        if self is program:
            return self._lines_of_calls(op.function)
        origins = op.origins.get(program.stage, ())
        return next(filter(None, (program._lines_of(each, program) for each in origins)), ())

    def _lines_of_calls(self, function: str) -> tuple[Frame, ...]:
        """Return the lines of the ops that call a function or have it as a rule, if they agree."""
        if function not in self._called_at:
            self._called_at[function] = ()  # for a function that calls itself
            calls = self._calls.get(function, ())
            found = {self._lines_of(number, self) for number in calls} - {()}
            self._called_at[function] = found.pop() if len(found) == 1 else ()
        return self._called_at[function]

    @functools.cached_property
    def _called_at(self) -> dict[str, tuple[Frame, ...]]:
        return {}

    @functools.cached_property
    def _calls(self) -> dict[str, list[int]]:
        """The ops that call each function, or have it as a rule."""
        found: dict[str, list[int]] = {}
        for number, op in enumerate(self.ops):
            for name in {op.callee, *(op.rules or {}).values()} - {None}:
                found.setdefault(str(name), []).append(number)
        return found


def read_listing(module: ir.Module, stage: str, primals: int | None = None) -> Listing:
    """Read a module; give its ops locations of their own, which name the stage.

    Args:
      module: is changed: only its locations.
      stage: the name of the listing, in lower case.
      primals: how many arguments of `@main` are not tangents or cotangents; by default all.
    """
    reader = _Reader(module)
    for number, operation in enumerate(reader.operations):
        mark = ir.Location.name(f"{stage}:{number}", context=module.context)
        operation.location = ir.Location.fused([mark, operation.location], context=module.context)
    printed = Printed(text_of(module, debug_info=True, most_elements=MOST_ELEMENTS))
    _place(reader.ops, reader.parents, printed, stage)
    carriers = set() if primals is None else reader.depend_on_arguments(primals)
    return Listing(stage, printed.rows, reader.ops, reader.names, reader.makers, carriers)


class _Reader:
    """The ops and values of a module, numbered in the order of the text."""

    def __init__(self, module: ir.Module) -> None:
        self._names = ir.AsmState(module.operation)
        self._numbers: dict[Value, int] = {}
        self.names: list[str] = []
        self.makers: list[int] = []
        self.ops: list[ListedOp] = []
        self.parents: list[int] = []
        self.operations: list[ir.Operation] = []
        self._table = functions_of(module)
        times = dict(costs.runs(module))
        for name, function in self._table.items():
            self._read(function, name, -1, times)

    def depend_on_arguments(self, first: int) -> set[int]:
        """Return the values that depend on the arguments of `@main` from this one on."""
        (block,) = blocks(self._table["main"])
        found = dependents(list(block.arguments)[first:], block, self._table)
        return {self._numbers[v] for v in found if v in self._numbers}

    def _read(self, operation: Any, function: str, parent: int, times: dict[Any, int]) -> None:
        number = len(self.ops)
        depth = 0 if parent < 0 else self.ops[parent].depth + 1
        op = ListedOp(operation.name, function, depth, [], [])
        self.ops.append(op)
        self.operations.append(operation)
        self.parents.append(parent)
        op.operands = [self._numbers[v] for v in operation.operands]
        op.results = [self._add(r, number) for r in operation.results]
        op.flops, op.bytes = costs.flops(operation), costs.bytes_moved(operation)
        op.runs, op.callee = times.get(operation, 0), called(operation)
        if (call := ops.view(operation)) is not None:
            op.rules = call.symbols
        for region in operation.regions:
            for block in region.blocks:
                op.results += [self._add(argument, number) for argument in block.arguments]
                for inner in block.operations:
                    self._read(inner.operation, function, number, times)

    def _add(self, v: Value, maker: int) -> int:
        number = self._numbers[v] = len(self.names)
        self.names.append(v.get_name(self._names))
        self.makers.append(maker)
        return number


def _place(every: list[ListedOp], parents: list[int], printed: Printed, stage: str) -> None:
    """Set the rows, origins and lines of ops from the text of their module."""
    for span in printed.spans:
        (name, number), *others = printed.marks(span.location)
        assert name == stage
        op = every[number]
        op.rows = span.start, span.end
        op.places = tuple(of_users(printed.frames(span.location)))
        for name, origin in dict.fromkeys(others):
            op.origins.setdefault(name, []).append(origin)
    for op, parent in zip(every, parents, strict=True):
        if op.rows[0] < 0:  # in a region that the text abbreviates, as of a sum
            op.rows = every[parent].rows
