"""Describe what a walk found in the user's terms: lines, rules, arguments, results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pullback.ir import locations, ops
from pullback.ir.regions import BRANCHES
from pullback.ir.symbols import called
from pullback.program.nans.links import Array
from pullback.program.nans.report import NanOperand, NanReport
from pullback.program.nans.walk import Around, Birth, Marks

if TYPE_CHECKING:
    from pullback.api.program import Program


class Description:
    """The words for what is found in a program."""

    def __init__(self, program: Program, what: str) -> None:
        self._program = program
        self._what = what

    def op(
        self, birth: Birth, sources: Sequence[Birth | tuple[int, Marks] | None]
    ) -> NanReport:
        """Return the report on an op that makes a NaN."""
        line = self._line(birth)
        return NanReport(
            self._what,
            birth.op.name,
            line,
            self._rule(birth.op),
            self._primal(birth.op, line),
            tuple(_around(each) for each in birth.around),
            tuple(self._operands(birth, sources)),
            birth.value,
            _first(birth.mask),
            int(birth.mask.sum()),
            _steps(birth.marks),
            self._result(birth.marks),
        )

    def argument(self, position: int, value: Array, marks: Marks) -> NanReport:
        """Return the report on an argument that has a NaN already."""
        return NanReport(
            self._what,
            None,
            None,
            None,
            None,
            (),
            (),
            value,
            _first(marks.mask),
            int(marks.mask.sum()),
            _steps(marks),
            self._result(marks),
            argument=self._argument(position),
        )

    def _operands(
        self, birth: Birth, sources: Sequence[Birth | tuple[int, Marks] | None]
    ) -> Iterator[NanOperand]:
        for x, cause, source in zip(birth.operands, birth.causes, sources, strict=True):
            if x is not None:
                at = None if cause is None or not cause.any() else _first(cause)
                yield NanOperand(x, at, source and self._source(source))

    def _source(self, source: Birth | tuple[int, Marks]) -> str:
        if isinstance(source, Birth):
            line = self._line(source)
            inside = "".join(f", in {_around(each)}" for each in reversed(source.around))
            return f"{source.op.name}{f' at {line}' if line else ''}{inside}"
        return f"the argument {self._argument(source[0])}"

    def _line(self, birth: Birth) -> str | None:
        """Return the user's line of an op; of one that has none, that of the next one behind it.

        Functions of JAX's own that are traced by themselves have no lines of the user's.
        """
        line = locations.user_line_of(birth.op)
        if line is not None:
            return line
        calls = [locations.user_line_of(each.op) for each in reversed(birth.around)]
        found = next((each for each in [*calls, *_lines(birth.marks)] if each), None)
        return found and f"a function that is used at {found}"

    def _rule(self, op: Any) -> str | None:
        frame = locations.innermost_frame(op.location)
        rules = self._program.rules
        return frame and getattr(rules, "rule_at", lambda *_: None)(*frame[:2])

    def _primal(self, op: Any, line: str | None) -> str | None:
        name = locations.primitive_of(op.location)
        if name is None or name == op.name.partition(".")[2]:
            return None
        return f"`{name}`"

    def _argument(self, position: int) -> str:
        hidden = len(self._program.constants)
        if position < hidden:
            return f"{position} of those that the function closes over"
        return f"`{self._program.arg_paths[position - hidden]}`"

    def _result(self, marks: Marks) -> str:
        leaves = jax.tree_util.tree_flatten_with_path(
            jax.tree.unflatten(self._program.out_tree, self._program.out_avals)
        )[0]
        path, aval = leaves[marks.result]
        name = f"the result{jax.tree_util.keystr(path)}"
        return f"{name} at {list(marks.element)}" if aval.shape else name


def _around(each: Around) -> str:
    line = locations.user_line_of(each.op)
    at = f" at {line}" if line else ""
    view = ops.view(each.op)
    if view is not None:
        return f"`{view.decomposition}`, which has a rule, called{at}"
    if (name := called(each.op)) is not None:
        return f"`{name}`, called{at}"
    if each.op.name in BRANCHES:
        return f"branch {each.number} of the {each.op.name.partition('.')[2]}{at}"
    return f"turn {each.number} of the loop{at}"


def _steps(marks: Marks) -> tuple[str, ...]:
    """Return the ops on the way to a result, without repetitions."""
    steps = []
    for op in marks.trail or ():
        line = locations.user_line_of(op)
        step = f"{op.name}{f' at {line}' if line else ''}"
        if step not in steps[-3:]:
            steps.append(step)
    return tuple(steps)


def _lines(marks: Marks) -> Iterator[str | None]:
    return (locations.user_line_of(op) for op in marks.trail or ())


def _first(mask: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
