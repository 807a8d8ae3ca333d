"""The walk from the NaNs of the results back to the op that made the first of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.regions import BRANCHES, WHILE, captures
from pullback.ir.symbols import called
from pullback.ir.traits import DATA
from pullback.nans.links import Array, Bad, Ends, Link, Mask, holds_floats, links
from pullback.nans.probes import Place, Probes

SLICES = ("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice")
State = Sequence[Any]


@dataclass(frozen=True)
class Marks:
    """The elements of a value that reach a result of the program, and the way of some of them.

    Attributes:
      ends: for each element, the number of one that it reaches in the program's results, which are
        numbered from 1; 0 if it reaches none.
      trail: the ops that follow on the way: the next one, and the trail after it.
      mixer: an op on the way of which is not known which of its elements depend on which.
    """

    ends: Ends
    trail: tuple[Any, Any] | None = None
    mixer: Any = None

    def ops(self) -> Iterator[Any]:
        """Yield the ops on the way."""
        trail = self.trail
        while trail is not None:
            op, trail = trail
            yield op


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
class Birth:
    """An op that makes what is looked for, of operands without it.

    Attributes:
      at: the position of the op: its block, what that is in, and its index there.
      operands: what it computes with; None in the place of what is not an array.
      causes: for each operand, the elements that these depend on.
      marks: the elements of its result that it makes, and how they reach one of the program.
    """

    op: Any
    at: tuple[Place, tuple[Around, ...], int]
    value: Array
    operands: tuple[Array | None, ...]
    causes: tuple[Mask | None, ...]
    marks: Marks

    @property
    def around(self) -> tuple[Around, ...]:
        """Return what the op is in, the outermost first."""
        return self.at[1]

    def is_at(self, other: Any) -> bool:
        """Return True if something is found at the same op as well."""
        return isinstance(other, Birth) and self.at == other.at


@dataclass
class _Visit:
    """Hold a run of a block: what it is in, its values, and which elements reach a result."""

    place: Place
    around: tuple[Around, ...]
    values: Mapping[Value, Array]
    marks: dict[Value, Marks] = field(default_factory=dict)

    def all(self, values: Sequence[Value]) -> list[Any]:
        """Return arrays for some of the values; None for what is not an array."""
        return [self.values.get(v) for v in values]


class Walk:
    """Walk backwards through a program.

    Attributes:
      birth: the earliest op found that makes a `bad`.
    """

    def __init__(self, probes: Probes, bad: Bad, source: tuple[Birth, int] | None = None) -> None:
        """Begin a walk.

        Args:
          source: an op, and the position of an operand: the walk goes on from that op as a walk
            from the infinities of this operand to the op that made them.
        """
        self.birth: Birth | None = None
        self._probes = probes
        self._bad = bad
        self._source = source
        self._visits: list[_Visit] = []

    def run(self, inputs: Sequence[Any], wanted: Sequence[Marks | None]) -> list[Marks | None]:
        """Walk from these elements of the results; return which of the arguments they reach."""
        return self._block(Place("main"), (), inputs, wanted)

    def _block(
        self,
        place: Place,
        around: tuple[Around, ...],
        inputs: Sequence[Any],
        wanted: Sequence[Marks | None],
    ) -> list[Marks | None]:
        """Walk through a block; return which elements of its inputs are reached."""
        block = self._probes.blocks(place)
        if not any(wanted):
            return [None] * len(block.inputs)
        values = self._probes.values(place, inputs)
        at = _Visit(place, _indexed(around, block.ops, values), values)
        self._visits.append(at)
        self._mark_all(at, block.ops[-1].operands, wanted)
        for index in range(len(block.ops) - 2, -1, -1):
            op = block.ops[index]
            given = [at.marks.pop(v, None) for v in op.results]
            if not any(given):
                continue
            if (element := _of_tuple(op)) is not None:
                self._mark(at, element, given[0])
            elif not self._control(at, index, op, given):
                self._plain(at, index, op, given)
        self._visits.pop()
        return [at.marks.get(v) for v in block.inputs]

    def _mark(self, at: _Visit, v: Value, marks: Marks | None) -> bool:
        """Mark elements of a value, of which those that are bad count; return True if any are."""
        x = at.values.get(v)
        if marks is None or x is None or not holds_floats(x):
            return False
        if not (ends := np.where(self._bad(x), marks.ends, 0)).any():
            return False
        known = at.marks.get(v)
        if known is not None:
            marks, ends = known, np.where(known.ends, known.ends, ends)
        at.marks[v] = replace(marks, ends=ends)
        return True

    def _mark_all(self, at: _Visit, values: Sequence[Value], found: Sequence[Marks | None]) -> bool:
        """Mark elements of several values; return True if any of them are bad."""
        marked = [self._mark(at, v, marks) for v, marks in zip(values, found, strict=True)]
        return any(marked)

    # ---------------------------------------------------------------- calls, branches, loops

    def _control(self, at: _Visit, index: int, op: Any, given: list[Marks | None]) -> bool:
        """Walk through the bodies of an op; return False if it has none that can be looked into."""
        before = self.birth, self._bad
        name = called(op)
        if name is None and op.name not in (*BRANCHES, WHILE):
            return False
        if any(x is None for x in at.all([*op.operands, *captures(op)])):  # a token, for effects
            return False
        if name is not None:
            found = self._body(at, Place(name), Around(op), op.operands, given)
        elif op.name == WHILE:
            found = self._loop(at, index, op, given)
        else:
            number = _branch_taken(op, at.values[op.operands[0]])
            place = at.place.inside(index, number)
            captured = self._probes.blocks(place).captured
            found = self._body(at, place, Around(op, number), captured, given)
        # Where a body runs alone, its numbers may be rounded otherwise.
        return found or self.birth is not before[0] or self._bad is not before[1]

    def _body(
        self,
        at: _Visit,
        place: Place,
        inside: Around,
        values: Sequence[Value],
        given: list[Marks | None],
    ) -> bool:
        """Walk through a block that runs once, on these values."""
        found = self._block(place, (*at.around, inside), at.all(values), given)
        return self._mark_all(at, values, found)

    def _loop(self, at: _Visit, index: int, op: Any, given: list[Marks | None]) -> bool:
        cond, body = (at.place.inside(index, region) for region in (0, 1))
        outside = self._probes.blocks(body).captured
        captured = at.all(outside)

        def outputs(place: Place, state: State) -> list[Any]:
            values = at.all(self._probes.blocks(place).captured)
            return self._probes.outputs(place, [*state, *values])

        first: State = at.all(op.operands)
        state, count, reached = first, 0, False
        while outputs(cond, state)[0]:
            state, count = outputs(body, state), count + 1
        for number, state in _backwards(lambda state: outputs(body, state), first, count):
            around = (*at.around, Around(op, number))
            found = self._block(body, around, [*state, *captured], given)
            given = found[: len(state)]
            reached |= self._mark_all(at, outside, found[len(state) :])
            if not any(given):
                return reached
        return self._mark_all(at, op.operands, given) or reached

    # ---------------------------------------------------------------- ops without bodies

    def _plain(self, at: _Visit, index: int, op: Any, given: Sequence[Marks | None]) -> None:
        """Mark the elements of an op's operands that are to blame; note it if none are."""
        operands = at.all(op.operands)
        if self._source is not None and (at.place, at.around, index) == self._source[0].at:
            return self._look_for_infinity(at, *self._source)
        for position, marks in enumerate(given):
            if marks is None:
                continue
            bad, wanted = self._bad, marks.ends > 0
            found = links(op, operands, position, wanted, bad, self._probes.alone)
            computed = [link for link in found if _may_explain(op, link.operand)]
            born = np.where(np.any([~wanted, *(x.covers for x in computed)], 0), 0, marks.ends)
            if born.any():
                causes: list[Mask | None] = [None] * len(operands)
                for link in found:
                    causes[link.operand] = link.causes(operands[link.operand], born)
                self.birth = Birth(
                    op,
                    (at.place, at.around, index),
                    at.values[op.results[position]],
                    tuple(operands),
                    tuple(causes),
                    replace(marks, ends=born),
                )
            mixer = marks.mixer or (op if self._mixes(operands, computed) else None)
            for link in computed:
                rest = link.backward(np.where(born, 0, marks.ends))
                self._mark(at, op.operands[link.operand], Marks(rest, (op, marks.trail), mixer))
        return None

    def _look_for_infinity(self, at: _Visit, birth: Birth, operand: int) -> None:
        """Go on from an op as a walk from the infinities of one of its operands alone."""
        self._source, self._bad, self.birth = None, np.isinf, None
        for visit in self._visits:
            visit.marks.clear()
        ends = np.asarray(birth.causes[operand]).astype(int)
        trail = birth.op, birth.marks.trail
        self._mark(at, birth.op.operands[operand], Marks(ends, trail))

    def _mixes(self, operands: Sequence[Any], found: Sequence[Link]) -> bool:
        """Return True if several elements may be to blame, and it is not known which are."""
        if all(link.is_exact for link in found):
            return False
        return bool(sum(self._bad(operands[link.operand]).sum() for link in found) > 1)


def _backwards(
    step: Callable[[State], State], first: State, count: int
) -> Iterator[tuple[int, State]]:
    """Yield the number of each of the first `count` iterations, last first, and its state.

    It is the state before the iteration. Every so many are kept, the others recomputed.
    """

    def states(state: State, count: int, stride: int) -> list[State]:
        kept = []
        for number in range(count):
            if number % stride == 0:
                kept.append(state)
            if number + 1 < count:
                state = step(state)
        return kept

    stride = math.isqrt(count) + 1
    kept = states(first, count, stride)
    for start in reversed(range(0, count, stride)):
        near = states(kept[start // stride], min(stride, count - start), 1)
        yield from ((start + i, near[i]) for i in reversed(range(len(near))))


def _indexed(
    around: tuple[Around, ...], ops: Sequence[Any], values: Mapping[Value, Array]
) -> tuple[Around, ...]:
    """Say of an iteration of a loop at which index it slices arrays, if that is not its number."""
    if not around or around[-1].op.name != WHILE:
        return around
    slices = [op for op in ops if op.name in SLICES and build.rank(op.operands[0])]
    starts = [op.operands[DATA[op.name].stop] for op in slices]
    found = {int(values[v]) for v in starts if not is_written(v)}
    if len(found) != 1 or found == {around[-1].number}:
        return around
    return (*around[:-1], replace(around[-1], index=found.pop()))


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
