"""Read a module as rows of text, and say which op, value and origin each row has.

Each op is given a location of its own, beside the one that it has: `fused["program:17", …]`. What
passes make of an op has its location, so the modules derived from this one say of each op which ops
it came from, exactly, also where many ops have the same line.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

from pullback._jax import ir
from pullback._jax.source_info import Frame
from pullback.ir import costs, ops
from pullback.ir.build import Value
from pullback.ir.dependence import Dependence
from pullback.ir.locations import of_users
from pullback.ir.regions import blocks
from pullback.ir.symbols import FUNC, called, functions as functions_of
from pullback_runtime._jax import unescaped

MOST_ELEMENTS = 16
"""A constant with more elements is elided in a listing."""

_LOCATION = re.compile(r" ?loc\((#loc\d*|unknown|\"(?:[^\"\\]|\\.)*\"(?:\(#loc\d*\))?)\)")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_NAMED_ALIAS = re.compile(r"#loc\d*")
_MARK = re.compile(r"\"([a-z]+):(\d+)\"")
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"\(')
_HEADER = re.compile(r"\s*(?:[})^]|(?:cond|reducer|do)\b)")

Mark = tuple[str, int]
"""A stage and the number of one of its ops."""


@dataclass
class ListedOp:
    """An op of a listing.

    Attributes:
      name: such as `stablehlo.add`.
      function: the function that it is in, or that it is.
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


def read_listing(module: ir.Module, stage: str, primals: int | None = None) -> Listing:
    """Read a module; give its ops locations of their own, which name the stage.

    Args:
      module: is changed: only its locations.
      stage: the name of the listing, in lower case.
      primals: how many arguments of `@main` are no tangents or cotangents; by default all.
    """
    reader = _Reader(module)
    for number, operation in enumerate(reader.operations):
        mark = ir.Location.name(f"{stage}:{number}", context=module.context)
        operation.location = ir.Location.fused([mark, operation.location], context=module.context)
    text = module.operation.get_asm(
        enable_debug_info=True, assume_verified=True, large_elements_limit=MOST_ELEMENTS
    )
    rows = _place(reader.ops, reader.parents, text, stage)
    carriers = set() if primals is None else reader.depend_on_arguments(primals)
    return Listing(stage, rows, reader.ops, reader.names, reader.makers, carriers)


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
        seeds = set(list(block.arguments)[first:])
        dependence = Dependence(self._table)
        dependence.spread(block, set(seeds))
        return {self._numbers[v] for v in dependence.everywhere | seeds if v in self._numbers}

    def _read(self, operation: Any, function: str, parent: int, times: dict[Any, int]) -> None:
        number = len(self.ops)
        op = ListedOp(operation.name, function, [], [])
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


def _place(every: list[ListedOp], parents: list[int], text: str, stage: str) -> list[str]:
    """Find the rows, origins and lines of the ops in a text with locations; return its rows."""
    aliases = _Aliases(text)
    rows: list[str] = []
    for line in text.splitlines():
        if _ALIAS.match(line):
            continue
        found = list(_LOCATION.finditer(line))
        marks = aliases.marks(found[-1][1]) if found and found[-1].end() == len(line) else ()
        if marks and marks[0][0] == stage:
            op = every[marks[0][1]]
            op.rows = (len(rows), len(rows))
            op.places = tuple(of_users(aliases.frames(found[-1][1])))
            for name, origin in dict.fromkeys(marks[1:]):
                op.origins.setdefault(name, []).append(origin)
        rows.append(_LOCATION.sub("", line))
    _find_starts(every, parents, rows)
    return rows


def _find_starts(every: list[ListedOp], parents: list[int], rows: list[str]) -> None:
    """Move the first rows of ops with regions to where they start: their location is at the end."""
    first: dict[int, int] = {}
    for number in reversed(range(len(every))):
        op, parent = every[number], parents[number]
        if op.rows[0] < 0:
            continue
        start, end = op.rows
        if number in first:
            margin = _margin(rows[end])
            start = first[number] - 1
            while _margin(rows[start]) != margin or _HEADER.match(rows[start]):
                start -= 1
            op.rows = start, end
        if parent >= 0:
            first[parent] = start
    for op, parent in zip(every, parents, strict=True):
        if op.rows[0] < 0:  # in a region that the text abbreviates, as of a sum
            op.rows = every[parent].rows


def _margin(row: str) -> int:
    return len(row) - len(row.lstrip())


class _Aliases:
    """The locations that a text defines behind names: `#loc7 = loc(callsite(#loc5 at #loc6))`."""

    def __init__(self, text: str) -> None:
        self._texts = dict(_ALIAS.findall(text))
        self._marks: dict[str, tuple[Mark, ...]] = {}
        self._frames: dict[str, tuple[Frame, ...]] = {}

    def marks(self, location: str) -> tuple[Mark, ...]:
        """Return the marks in a location, in order: of the op itself first, of its calls last."""
        if location not in self._marks:
            text = self._texts.get(location, location)
            marks = tuple((m[1], int(m[2])) for m in _MARK.finditer(text))
            inner = (self.marks(name) for name in _NAMED_ALIAS.findall(text) if name != location)
            self._marks[location] = marks + tuple(each for found in inner for each in found)
        return self._marks[location]

    def frames(self, location: str) -> tuple[Frame, ...]:
        """Return the frames in a location, innermost first; without a function's name if none."""
        if location not in self._frames:
            text = self._texts.get(location, location)
            plain = _FILE.match(text)
            if plain is not None:
                self._frames[location] = ((unescaped(plain[1]), int(plain[2]), ""),)
                return self._frames[location]
            inner = [self.frames(name) for name in _NAMED_ALIAS.findall(text) if name != location]
            named = _NAME.match(text)
            if named is not None and len(inner) == 1 and len(inner[0]) == 1 and not inner[0][0][2]:
                file, line, _ = inner[0][0]
                inner = [((file, line, unescaped(named[1])),)]
            self._frames[location] = tuple(each for found in inner for each in found)
        return self._frames[location]
