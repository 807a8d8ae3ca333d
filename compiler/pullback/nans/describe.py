"""Describe what a walk found in the user's terms: lines, rules, arguments, results."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir import locations, ops
from pullback.ir.regions import BRANCHES
from pullback.ir.symbols import called
from pullback.nans.links import Array
from pullback.nans.report import NanOperand, NanPlace, NanReport
from pullback.nans.walk import Around, Birth, Marks
from pullback.program.record import result_paths

if TYPE_CHECKING:
    from pullback import Program


Source = Birth | int
"""Where an infinity comes from: an op, or the position of an argument of the program."""


def report(
    program: Program,
    what: str,
    found: Source,
    value: Array,
    marks: Marks,
    results: Sequence[Array | None],
    sources: Sequence[Source | None],
) -> NanReport:
    """Return the report on an op that makes a NaN, or on an argument that has one.

    Args:
      what: is looked for.
      value: the result of the op, or the argument.
      marks: the elements of it that reach a result.
      results: of the program.
      sources: for each operand of the op, where an infinity in it comes from.
    """
    first = _first(marks.ends > 0)
    birth = found if isinstance(found, Birth) else None
    frame = None if birth is None else locations.innermost_frame(birth.op.location)
    return NanReport(
        what,
        _argument(program, found) if isinstance(found, int) else _place(found),
        frame and program.rules.rule_at(*frame[:2]),
        tuple(_operands(program, birth, sources)) if birth else (),
        value,
        first,
        int((marks.ends > 0).sum()),
        tuple(dict.fromkeys(map(_step, marks.ops()))),
        _result(program, results, int(marks.ends[first])),
        None if marks.mixer is None else _step(marks.mixer),
    )


def _operands(
    program: Program, birth: Birth, sources: Sequence[Source | None]
) -> Iterator[NanOperand]:
    for x, cause, source in zip(birth.operands, birth.causes, sources, strict=True):
        said = None
        if isinstance(source, Birth):
            place = _place(source)
            said = ", in ".join([str(place), *reversed(place.around)])
        elif source is not None:
            said = _argument(program, source)
        if x is not None:
            yield NanOperand(x, _telling(x, cause), said)


def _argument(program: Program, position: int) -> str:
    hidden = len(program.constants)
    if position < hidden:
        return f"array {position} that the function closes over"
    return f"the argument `{program.arg_paths[position - hidden]}`"


def _result(program: Program, results: Sequence[Array | None], end: int) -> str:
    """Return the name of a result and an index in it, given the number of the element."""
    shapes = [() if x is None else x.shape for x in results]
    number = sum(map(math.prod, shapes)) - end
    position = 0
    while number >= (size := math.prod(shapes[position])):
        number, position = number - size, position + 1
    name = f"the {result_paths(program)[position]}"
    element = [int(i) for i in np.unravel_index(number, shapes[position])]
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
    near = [*(each.op for each in reversed(birth.around)), *birth.marks.ops()]
    line_near = next(filter(None, map(locations.user_line_of, near)), None)
    return NanPlace(birth.op.name, primitive, line or line_near, line is None, around)


def _with_own_line(op: Any) -> Any:
    """Return the op, or for a constant one that uses it: JAX gives numbers the line of the call."""
    uses = list(op.results[0].uses) if op.name == "stablehlo.constant" else []
    return uses[-1].owner if uses else op


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


def _step(op: Any) -> str:
    line = locations.user_line_of(op)
    return f"{op.name} at {line}" if line else str(op.name)


def _telling(x: Array, cause: Any) -> tuple[int, ...] | None:
    """Return the index of an element that counts: of an infinite one, if there is any."""
    if cause is None or not cause.any():
        return None
    infinite = cause & np.isinf(x)
    return _first(infinite if infinite.any() else cause)


def _first(mask: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
