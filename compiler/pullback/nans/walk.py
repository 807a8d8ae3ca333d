"""The walk from the NaNs of the results back to the op that made the first of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.regions import BRANCHES, captures
from pullback.ir.symbols import called
from pullback.nans.links import Array, Bad, Ends, Link, Mask, holds_floats, links
from pullback.nans.probes import Place, Probes

WHILE = "stablehlo.while"
SLICES = {"stablehlo.dynamic_slice": 1, "stablehlo.dynamic_update_slice": 2}
"""Ops that slice arrays, and the position of the first index among their operands."""
COND, BODY = 0, 1


@dataclass(frozen=True)
class Trail:
    """The ops that a NaN passed on its way: from one op to the end."""

    op: Any
    after: Trail | None

    def __iter__(self) -> Iterator[Any]:
        trail: Trail | None = self
        while trail is not None:
            yield trail.op
            trail = trail.after


@dataclass(frozen=True)
class Marks:
    """The elements of a value that reach a result of the program, and the way of some of them.

    Attributes:
      ends: for each element, the number of one that it reaches in the program's results, which are
        numbered from 1; 0 if it reaches none.
      trail: the ops that follow on the way; None at the end of it.
      mixer: an op on the way of which is not known which of its elements depend on which.
    """

    ends: Ends
    trail: Trail | None = None
    mixer: Any = None

    @property
    def mask(self) -> Mask:
        """The elements that reach a result."""
        return np.asarray(self.ends > 0)


@dataclass(frozen=True)
class Descent:
    """An op on the way into a program: a call, a branch or, by number, an iteration of a loop."""

    index: int
    turn: int = 0


@dataclass(frozen=True)
class Around:
    """An op whose body an op is in: a call, a branch by its number, a loop by its iteration.

    Attributes:
      index: where this iteration of a loop slices arrays, if that is one index and not the number:
        a backward loop has the indices of the forward one, from the last to the first.
    """

    op: Any
    number: int = 0
    index: int | None = None


@dataclass(frozen=True)
class Site:
    """A block as it runs once: its place, the steps to it, and what it is in."""

    place: Place
    steps: tuple[Descent, ...] = ()
    around: tuple[Around, ...] = ()

    def inside(self, place: Place, index: int, op: Any, number: int = 0) -> Site:
        """Return the site of a body of the op at this index."""
        return Site(
            place, (*self.steps, Descent(index, number)), (*self.around, Around(op, number))
        )


@dataclass(frozen=True)
class Birth:
    """An op that makes what is looked for, of operands without it.

    Attributes:
      steps: the way to the op; the last step is the op.
      operands: what it computes with; None in the place of what is not an array.
      causes: for each operand, the elements that these depend on.
      marks: the elements of its result that it makes, and how they reach one of the program.
    """

    op: Any
    steps: tuple[Descent, ...]
    around: tuple[Around, ...]
    value: Array
    operands: tuple[Array | None, ...]
    causes: tuple[Mask | None, ...]
    marks: Marks


class Walk:
    """A walk backwards through a program; `birth` is the earliest op found that makes a `bad`."""

    def __init__(self, probes: Probes, bad: Bad, seeds: Sequence[Marks | None] = ()) -> None:
        self.birth: Birth | None = None
        self._probes = probes
        self._bad = bad
        self._seeds = seeds

    def run(
        self, inputs: Sequence[Any], wanted: Sequence[Marks | None], start: tuple[Descent, ...] = ()
    ) -> list[Marks | None]:
        """Walk from these elements of the results; return those of the arguments that they reach.

        Args:
          start: where to begin instead, with the `seeds`, elements of the operands of an op.
        """
        return self._block(Site(Place("main")), inputs, wanted, start)

    def _marked(self, x: Array | None) -> Mask | None:
        return self._bad(x) if x is not None and holds_floats(x) else None

    def _block(
        self,
        site: Site,
        inputs: Sequence[Any],
        wanted: Sequence[Marks | None],
        start: tuple[Descent, ...],
    ) -> list[Marks | None]:
        """Walk through a block; return which elements of its inputs are reached."""
        block = self._probes.blocks(site.place)
        if not start and not any(wanted):
            return [None] * len(block.inputs)
        values, ops = self._probes.values(site.place, inputs), block.ops
        at = _Visit(_indexed(site, ops, values), values, {}, self._marked)
        for v, marks in zip(ops[-1].operands, wanted, strict=True) if wanted else ():
            at.mark(v, marks)
        last = start[0].index if start else len(ops) - 2
        for index in range(last, -1, -1):
            self._op(at, index, ops[index], start if index == last else ())
        return [at.marks.get(v) for v in block.inputs]

    def _op(self, at: _Visit, index: int, op: Any, start: tuple[Descent, ...]) -> None:
        given = [at.marks.pop(v, None) for v in op.results]
        if start[1:]:
            self._control(at, index, op, given, start)
        elif start:
            at.mark_all(op.operands, self._seeds)
        elif any(given):
            if (element := _of_tuple(op)) is not None:
                at.mark(element, given[0])
            elif not self._control(at, index, op, given, ()):
                self._plain(at, index, op, given)

    # ---------------------------------------------------------------- calls, branches, loops

    def _control(
        self, at: _Visit, index: int, op: Any, given: list[Marks | None], start: tuple[Descent, ...]
    ) -> bool:
        """Walk through the bodies of an op; return False if it has none that can be looked into."""
        before = self.birth
        name = called(op)
        if name is None and op.name not in (*BRANCHES, WHILE):
            return False
        if any(x is None for x in at.all([*op.operands, *captures(op)])):  # a token, for effects
            return False
        if name is not None:
            found = self._call(at, index, op, Place(name), given, start)
        elif op.name == WHILE:
            found = self._loop(at, index, op, given, start)
        else:
            found = self._branch(at, index, op, given, start)
        # Where a body runs alone, its numbers may be rounded otherwise.
        return found or self.birth is not before or bool(start)

    def _call(
        self,
        at: _Visit,
        index: int,
        op: Any,
        place: Place,
        given: list[Marks | None],
        start: tuple[Descent, ...],
    ) -> bool:
        site = at.site.inside(place, index, op)
        found = self._block(site, at.all(op.operands), given, start[1:])
        return at.mark_all(op.operands, found)

    def _branch(
        self, at: _Visit, index: int, op: Any, given: list[Marks | None], start: tuple[Descent, ...]
    ) -> bool:
        number = _branch_taken(op, at.values[op.operands[0]])
        place = at.site.place.inside(index, number)
        captured = self._probes.blocks(place).captured
        site = at.site.inside(place, index, op, number)
        found = self._block(site, at.all(captured), given, start[1:])
        return at.mark_all(captured, found)

    def _loop(
        self, at: _Visit, index: int, op: Any, given: list[Marks | None], start: tuple[Descent, ...]
    ) -> bool:
        cond, body = (at.site.place.inside(index, region) for region in (COND, BODY))
        outside = self._probes.blocks(body).captured
        captured = at.all(outside)
        turns = Turns(
            lambda state: bool(self._outputs(cond, at, state)[0]),
            lambda state: self._outputs(body, at, state),
            at.all(op.operands),
        )
        reached = False
        count = start[0].turn + 1 if start else turns.count()
        for turn, state in turns.backwards(count):
            site = at.site.inside(body, index, op, turn)
            found = self._block(site, [*state, *captured], given, start[1:])
            given, start = found[: len(state)], ()
            reached |= at.mark_all(outside, found[len(state) :])
            if not any(given):
                return reached
        return at.mark_all(op.operands, given) or reached

    def _outputs(self, place: Place, at: _Visit, state: Sequence[Any]) -> list[Any]:
        captured = at.all(self._probes.blocks(place).captured)
        return self._probes.outputs(place, [*state, *captured])

    # ---------------------------------------------------------------- ops without bodies

    def _plain(self, at: _Visit, index: int, op: Any, given: Sequence[Marks | None]) -> None:
        """Mark the elements of an op's operands that are to blame; note it if none are."""
        operands = at.all(op.operands)
        for position, marks in enumerate(given):
            if marks is None:
                continue
            found = links(op, operands, position, self._probes, self._bad)
            computed = [link for link in found if _may_explain(op, link.operand)]
            born = marks.ends
            for link in computed:
                born = np.where(link.forward(self._bad(operands[link.operand])), 0, born)
            if born.any():
                self._note(at, index, op, position, replace(marks, ends=born), found)
            mixer = marks.mixer or (op if self._mixes(operands, computed) else None)
            for link in computed:
                rest = link.backward(np.where(born, 0, marks.ends))
                at.mark(op.operands[link.operand], Marks(rest, Trail(op, marks.trail), mixer))

    def _mixes(self, operands: Sequence[Any], found: Sequence[Link]) -> bool:
        """Return True if several elements may be to blame, and it is not known which are."""
        if all(link.is_known for link in found):
            return False
        return bool(sum(self._bad(operands[link.operand]).sum() for link in found) > 1)

    def _note(
        self, at: _Visit, index: int, op: Any, position: int, marks: Marks, found: Sequence[Link]
    ) -> None:
        causes: list[Mask | None] = [None] * len(op.operands)
        for link in found:
            every = np.ones(build.shape(op.operands[link.operand]), bool)
            causes[link.operand] = every if link.is_tried else link.backward(marks.ends) > 0
        self.birth = Birth(
            op,
            (*at.site.steps, Descent(index)),
            at.site.around,
            at.values[op.results[position]],
            tuple(at.all(op.operands)),
            tuple(causes),
            marks,
        )


@dataclass(frozen=True)
class _Visit:
    """One run of a block: what its values are, and which of their elements reach a result."""

    site: Site
    values: Mapping[Value, Array]
    marks: dict[Value, Marks]
    bad: Callable[[Array | None], Mask | None]

    def all(self, values: Sequence[Value]) -> list[Any]:
        """Return arrays for some of the values; None for what is not an array."""
        return [self.values.get(v) for v in values]

    def mark(self, v: Value, marks: Marks | None) -> bool:
        """Mark elements of a value, of which those that are bad count; return True if any are."""
        bad = None if marks is None else self.bad(self.values.get(v))
        if marks is None or bad is None or not (ends := np.where(bad, marks.ends, 0)).any():
            return False
        known = self.marks.get(v)
        if known is not None:
            marks, ends = known, np.where(known.ends, known.ends, ends)
        self.marks[v] = replace(marks, ends=ends)
        return True

    def mark_all(self, values: Sequence[Value], found: Sequence[Marks | None]) -> bool:
        """Mark elements of several values; return True if any of them are bad."""
        marked = [self.mark(v, marks) for v, marks in zip(values, found, strict=True)]
        return any(marked)


class Turns:
    """The iterations of a loop, last first, of which few states are kept at a time."""

    def __init__(
        self,
        goes_on: Callable[[Sequence[Any]], bool],
        step: Callable[[Sequence[Any]], list[Any]],
        first: Sequence[Any],
    ) -> None:
        self._goes_on, self._step, self._first = goes_on, step, first

    def count(self) -> int:
        """Return how often the body runs."""
        state, turns = self._first, 0
        while self._goes_on(state):
            state, turns = self._step(state), turns + 1
        return turns

    def backwards(self, count: int) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the number of each of the first `count` iterations, last first, and its state.

        It is the state before the iteration. Every so many are kept, the others recomputed.
        """
        stride = math.isqrt(count) + 1
        kept = self._states(self._first, count, stride)
        for start in reversed(range(0, count, stride)):
            states = self._states(kept[start // stride], min(stride, count - start), 1)
            for turn in reversed(range(len(states))):
                yield start + turn, states[turn]

    def _states(self, state: Sequence[Any], count: int, stride: int) -> list[Sequence[Any]]:
        """Return every `stride`-th of the states before `count` iterations from one on."""
        states = []
        for turn in range(count):
            if turn % stride == 0:
                states.append(state)
            if turn + 1 < count:
                state = self._step(state)
        return states


def _indexed(site: Site, ops: Sequence[Any], values: Mapping[Value, Array]) -> Site:
    """Return the site of an iteration of a loop with the index at which it slices arrays."""
    if not site.around or site.around[-1].op.name != WHILE:
        return site
    slices = [op for op in ops if op.name in SLICES and build.rank(op.operands[0])]
    starts = [op.operands[SLICES[op.name]] for op in slices]
    found = {int(values[v]) for v in starts if not is_written(v)}
    index = found.pop() if len(found) == 1 else None
    *outer, loop = site.around
    if index is None or index == loop.number:
        return site
    return replace(site, around=(*outer, replace(loop, index=index)))


def _of_tuple(op: Any) -> Value | None:
    """Return what an op takes out of a tuple that is made beside it; tuples are not arrays."""
    if op.name != "stablehlo.get_tuple_element":
        return None
    (whole,) = op.operands
    made_here = build.is_result_of(whole, "stablehlo.tuple")
    return whole.owner.operands[build.number(op, "index")] if made_here else None


def _branch_taken(op: Any, index: Array) -> int:
    if op.name == "stablehlo.if":
        return 0 if index else 1
    last = len(op.regions) - 1
    return int(index) if 0 <= int(index) <= last else last


def _may_explain(op: Any, operand: int) -> bool:
    """Return True if an operand is computed.

    A NaN that is written into the program is born where an op first takes it, such as a `where`.
    """
    return not is_written(op.operands[operand]) or is_written(op.results[0])


def is_written(v: Value) -> bool:
    """Return True if a value is a constant, or one that was broadcast, reshaped or converted."""
    while build.is_result_of(
        v, "stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"
    ):
        v = v.owner.operands[0]
    return build.is_result_of(v, "stablehlo.constant")
