"""Describe what a walk found in the user's terms: lines, rules, arguments, results."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pullback.ir import locations, ops
from pullback.ir.regions import BRANCHES
from pullback.ir.symbols import called
from pullback.nans.links import Array
from pullback.nans.report import NanOperand, NanPlace, NanReport
from pullback.nans.walk import Around, Birth, Marks

if TYPE_CHECKING:
    from pullback import Program


Source = Birth | int
"""Where an infinity comes from: an op, or the position of an argument of the program."""


class Description:
    """The words for what is found in a program."""

    def __init__(self, program: Program, what: str, results: Sequence[Array | None]) -> None:
        self._program = program
        self._what = what
        self._shapes = [() if x is None else x.shape for x in results]

    def op(self, birth: Birth, sources: Sequence[Source | None]) -> NanReport:
        """Return the report on an op that makes a NaN."""
        operands = tuple(self._operands(birth, sources))
        return self._report(_place(birth), self._rule(birth.op), operands, birth.value, birth.marks)

    def argument(self, position: int, value: Array, marks: Marks) -> NanReport:
        """Return the report on an argument that has a NaN already."""
        return self._report(self._argument(position), None, (), value, marks)

    def _report(
        self,
        origin: NanPlace | str,
        rule: str | None,
        operands: tuple[NanOperand, ...],
        value: Array,
        marks: Marks,
    ) -> NanReport:
        return NanReport(
            self._what,
            origin,
            rule,
            operands,
            value,
            _first(marks.mask),
            int(marks.mask.sum()),
            _steps(marks),
            self._result(marks),
            None if marks.mixer is None else _step(marks.mixer),
        )

    def _operands(self, birth: Birth, sources: Sequence[Source | None]) -> Iterator[NanOperand]:
        for x, cause, source in zip(birth.operands, birth.causes, sources, strict=True):
            if x is not None:
                yield NanOperand(
                    x, _telling(x, cause), None if source is None else self._source(source)
                )

    def _source(self, source: Source) -> str:
        if isinstance(source, Birth):
            place = _place(source)
            return ", in ".join([str(place), *reversed(place.around)])
        return self._argument(source)

    def _rule(self, op: Any) -> str | None:
        frame = locations.innermost_frame(op.location)
        return frame and self._program.rules.rule_at(*frame[:2])

    def _argument(self, position: int) -> str:
        hidden = len(self._program.constants)
        if position < hidden:
            return f"array {position} that the function closes over"
        return f"the argument `{self._program.arg_paths[position - hidden]}`"

    def _result(self, marks: Marks) -> str:
        """Return the name of the result that the first element reaches, and the index in it."""
        total = sum(map(math.prod, self._shapes))
        number = total - int(marks.ends[_first(marks.mask)])
        position = 0
        while number >= (size := math.prod(self._shapes[position])):
            number, position = number - size, position + 1
        tree = jax.tree.unflatten(self._program.out_tree, range(len(self._shapes)))
        path, _ = jax.tree_util.tree_leaves_with_path(tree)[position]
        name = f"the result{jax.tree_util.keystr(path)}"
        element = [int(i) for i in np.unravel_index(number, self._shapes[position])]
        return f"{name} at {element}" if element else name


def _place(birth: Birth) -> NanPlace:
    """Return where an op is.

    A function of JAX's own that is traced by itself has no lines of the user's: then it is near the
    line that calls it, or that uses its result.
    """
    op = _with_own_line(birth.op)
    line = locations.user_line_of(op)
    around = tuple(filter(None, map(_around, birth.around)))
    primitive = locations.primitive_of(op.location)
    return NanPlace(birth.op.name, primitive, line or _near(birth), line is None, around)


def _with_own_line(op: Any) -> Any:
    """Return the op, or for a constant one that uses it: JAX gives numbers the line of the call."""
    uses = list(op.results[0].uses) if op.name == "stablehlo.constant" else []
    return uses[-1].owner if uses else op


def _near(birth: Birth) -> str | None:
    calls = (locations.user_line_of(each.op) for each in reversed(birth.around))
    return next(filter(None, [*calls, *_lines(birth.marks)]), None)


_WRAPPERS = re.compile(r"(closed_call|program|item|None)([._]|$)")
"""Names of functions that are not the user's: bodies of loops, and calls of programs."""


def _around(each: Around) -> str | None:
    """Return what an op is in: a call of a function, a branch, a loop; None for our own calls."""
    line = locations.user_line_of(each.op)
    at = f" at {line}" if line else ""
    name, primitive = called(each.op), locations.primitive_of(each.op.location)
    if name is not None and _WRAPPERS.match(name):
        return None
    if name is not None:
        rule = " (it has a rule)" if ops.view(each.op) is not None else ""
        return f"the call of `{name}`{rule}{at}"
    what = f"`{primitive}`" if primitive else str(each.op.name)
    if each.op.name in BRANCHES:
        return f"branch {each.number} of the {what}{at}"
    index = "" if each.index is None else f" (index {each.index})"
    return f"iteration {each.number}{index} of the {what}{at}"


def _steps(marks: Marks) -> tuple[str, ...]:
    """Return the ops on the way to a result, without repetitions."""
    return tuple(dict.fromkeys(map(_step, marks.trail or ())))


def _step(op: Any) -> str:
    line = locations.user_line_of(op)
    return f"{op.name} at {line}" if line else str(op.name)


def _lines(marks: Marks) -> Iterator[str | None]:
    return (locations.user_line_of(op) for op in marks.trail or ())


def _telling(x: Array, cause: Any) -> tuple[int, ...] | None:
    """Return the index of an element that counts: of an infinite one, if there is any."""
    if cause is None or not cause.any():
        return None
    infinite = cause & np.isinf(x)
    return _first(infinite if infinite.any() else cause)


def _first(mask: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
