"""Find schedules that save memory: what reverse mode stores, against what it computes again.

A schedule is a list of edits that put checkpoints into a function (`checkpoints.py`). Its bytes and
its operations are estimated on the IR, before anything is differentiated:

- Straight-line code stores a minimum cut of the values that derivative rules read; in segments, it
  stores what enters each segment, and has the rest of one segment at a time.
- A loop of n iterations stores n times what its body does; in blocks of m, it stores its state n/m
  times, and has the rest of m iterations at a time. Blocks of blocks cost one more run of the
  body for each level.

`schedules` returns those of a function for which no other one is better in both respects.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from pullback._jax import ir, remat
from pullback.autodiff import checkpoints
from pullback.autodiff.registry import RULES, apart, jointly
from pullback.autodiff.residuals import minimum_cut
from pullback.autodiff.state import Differentiation
from pullback.ir import build, costs, ops
from pullback.ir.build import Value
from pullback.ir.dependence import dependents
from pullback.ir.masks import masked
from pullback.ir.purity import acts
from pullback.ir.regions import (
    BRANCHES,
    MANUAL,
    WHILE,
    blocks,
    captures,
    operations,
    terminator,
)
from pullback.ir.stacks import stacks_of
from pullback.ir.symbols import CALL, called
from pullback.ir.traits import CHEAP, VIEW
from pullback.ir.while_loops import UNBOUNDED_SLOTS, read_loop

Edit = Callable[[Differentiation], None]
"""Changes the function that a schedule is of."""

LEVELS = 8
"""Bounds the depth of blocks of blocks."""
MOST = 24
"""Bounds the number of schedules that are kept for a block."""
NEAR = 4096
"""Bounds the search for a length of blocks, near the wanted one, that leaves no remainder."""


@dataclass(frozen=True)
class Schedule:
    """Estimate what the reverse mode of a block stores and computes again.

    Attributes:
      stored: bytes that are kept from the forward sweep on.
      peak: the most bytes that the backward sweep keeps in addition, at any time.
      again: operations that are computed again.
      edits: what to change in the block, in this order.
    """

    stored: int = 0
    peak: int = 0
    again: int = 0
    edits: tuple[Edit, ...] = ()

    @property
    def bytes(self) -> int:
        """All bytes that are kept at the same time."""
        return self.stored + self.peak

    def __add__(self, other: Schedule) -> Schedule:
        return Schedule(
            self.stored + other.stored,
            max(self.peak, other.peak),
            self.again + other.again,
            self.edits + other.edits,
        )

    def __or__(self, other: Schedule) -> Schedule:
        """Return the estimate of two branches: one of them runs, and they share results."""
        return dataclasses.replace(self + other, stored=max(self.stored, other.stored))


def schedules(diff: Differentiation, name: str, mask: str) -> list[Schedule]:
    """Return schedules of a function, from none computed again to the fewest bytes.

    Args:
      mask: of the arguments that it is to be differentiated by.
    """
    block = diff.block(name)
    moving = dependents(masked(block.arguments, mask), block, diff.functions)
    found = _Planner(diff, moving).block(block, set(block.arguments), True)
    return _best(found, lambda s: (s.again, s.bytes))


def _best(
    found: Iterable[Schedule], measure: Callable[[Schedule], tuple[int, ...]]
) -> list[Schedule]:
    """Return the schedules to which no other one is equal or better in all respects."""
    kept: list[tuple[tuple[int, ...], Schedule]] = []
    for schedule in sorted(found, key=lambda s: (s.again, s.bytes)):
        new = measure(schedule)
        if not any(all(a <= b for a, b in zip(old, new, strict=True)) for old, _ in kept):
            kept.append((new, schedule))
    return [schedule for _, schedule in kept]


def _few(found: Iterable[Schedule]) -> list[Schedule]:
    """Return the best schedules, and of many some that are spread over all of them."""
    best = _best(found, lambda s: (s.again, s.stored, s.bytes))
    if len(best) <= MOST:
        return best
    return [best[round(i * (len(best) - 1) / (MOST - 1))] for i in range(MOST)]


class _Planner:
    """The search in one function.

    Args:
      moving: the values that depend on what is differentiated, also those in nested blocks.
    """

    def __init__(self, diff: Differentiation, moving: Set[Value]) -> None:
        self.diff, self.moving = diff, moving

    def block(self, block: Any, free: Iterable[Value], is_last: bool = False) -> list[Schedule]:
        """Return schedules of a block, the first of which computes nothing again.

        Args:
          free: arguments that need not be stored.
          is_last: the backward sweep begins with the last op of the block, and comes only once.
        """
        part = _Segments(self, block, free, is_last)
        found = [part.plain(choice) for choice in part.choices]
        for choice in part.choices:
            found += part.segmented(choice)
        return _few(found)

    def moves(self, operation: Any) -> bool:
        """Return True if a result of an op depends on what is differentiated."""
        return any(v in self.moving for v in operation.results)

    def acts(self, operation: Any) -> bool:
        """Return True if the outside notices how often an op runs."""
        return self.diff.found_in(operation, acts) is not None

    def flops(self, operation: Any) -> int:
        """Return how many operations an op takes, with what it calls and all iterations."""
        total = costs.flops(operation)
        if (name := called(operation)) is not None and name in self.diff.functions:
            total += self._flops_of(name)
        total += costs.runs_inside(operation) * sum(map(self.flops_in, blocks(operation)))
        return max(total, 1)

    def flops_in(self, block: Any) -> int:
        """Return how many operations the ops of a block take."""
        return sum(map(self.flops, operations(block)))

    def _flops_of(self, name: str) -> int:
        count = self.diff.cached(("flops", name), lambda: self.flops_in(self.diff.block(name)))
        return int(count)

    def of_function(self, name: str) -> Schedule:
        """Return the schedule of a function that computes nothing again."""

        def find() -> Schedule:
            block = self.diff.block(name)
            moving = dependents(block.arguments, block, self.diff.functions)
            part = _Segments(_Planner(self.diff, moving), block, (), False)
            return part.plain(part.choices[0])

        found: Schedule = self.diff.cached(("schedule", name), find)
        return found

    def options(self, operation: Any) -> list[Schedule]:
        """Return the schedules of an op with regions, or that calls; the first is the plain one."""
        if not self.moves(operation):
            return [Schedule()]
        if operation.name == WHILE:
            return _few(self._of_loop(operation))
        if operation.name == CALL:
            function = self.diff.functions[called(operation) or ""]
            found = self.of_function(called(operation) or "")
            if remat.CHECKPOINT in function.attributes:
                return [Schedule(peak=found.bytes)]
            return [found]
        totals = [Schedule()]
        for block in blocks(operation):
            rows = self.block(block, block.arguments)
            totals = _few(total | row for total, row in itertools.product(totals, rows))
        return totals

    def _of_loop(self, operation: Any) -> Iterator[Schedule]:
        loop = read_loop(operation)
        stacks = stacks_of(loop)
        state = checkpoints.state_of(loop, [stack.carry for stack in stacks])
        size = sum(_size(loop.inits[i]) for i in state)
        bodies = self.block(
            loop.body, (a for a in loop.body.arguments if a.arg_number not in state)
        )
        if loop.slots is None:  # rules/loops/unbounded.py
            for body in bodies:
                yield Schedule(UNBOUNDED_SLOTS * size, body.bytes, body.again, body.edits)
            return
        count, cost = loop.slots, self.flops_in(loop.body)
        splits = loop.trip_count is not None and count > 3 and not self.acts(operation)
        for body in bodies:
            again = count * body.again
            yield Schedule(count * body.stored, body.peak, again, body.edits)
            for lengths in _lengths(count, size, body.stored) if splits else ():
                outer, *inner = (
                    -(-n // m) * size for n, m in itertools.pairwise((count, *lengths))
                )
                peak = sum(inner) + lengths[-1] * body.stored + body.peak
                edit = partial(checkpoints.split, operation=operation, lengths=lengths)
                more = len(lengths) * count * cost
                yield Schedule(outer, peak, again + more, (*body.edits, edit))


def _lengths(count: int, state: int, stored: int) -> Iterator[tuple[int, ...]]:
    """Yield lengths of blocks, and of blocks in these, that need few bytes.

    Args:
      count: of iterations.
      state, stored: the bytes of the state, and those that one iteration stores.
    """
    least = math.inf
    for levels in range(1, LEVELS + 1):

        def size(inner: float, levels: int = levels) -> float:
            return levels * (count / inner) ** (1 / levels) * state + inner * stored

        inner = min((2**i for i in range(1, count.bit_length() - 1)), key=size)
        if size(inner) >= least:
            return
        least = size(inner)
        for length in (inner, 2 * inner, 4 * inner):
            if length < count:
                yield _nested(count, length, levels)


def _nested(count: int, inner: int, levels: int) -> tuple[int, ...]:
    """Return lengths of blocks down to about `inner`, each of which divides the one before.

    Where none near the wanted length does, what is left over becomes a block of its own.
    """
    ratio = (count / inner) ** (1 / levels)
    lengths, whole = [], count
    for level in reversed(range(levels)):
        wanted = inner * ratio**level
        least = max(math.ceil(wanted / 1.5), int(wanted) - NEAR)
        most = min(int(wanted * 1.5), int(wanted) + NEAR)
        near = [m for m in range(least, most + 1) if 1 < m < whole]
        whole = min(near, key=lambda m: (whole % m != 0, abs(math.log(m / wanted))), default=0)
        if not whole:
            break
        lengths.append(whole)
    return tuple(lengths)


class _Segments:
    """The ops of a block of which there are segments: all but what costs nothing.

    A write of a slot of a stack is none of them, for a loop in blocks has to find it, nor is what
    is computed of counters.
    """

    def __init__(self, planner: _Planner, block: Any, free: Iterable[Value], is_last: bool) -> None:
        self.planner, self.is_last = planner, is_last
        self.free = set(free)
        self.own: set[Value] = set(block.arguments)
        self.items: list[Any] = []
        self.late: list[Any] = []
        self.used: list[list[Value]] = []  # by each item: values of this block that are not free
        self.place: dict[Value, int] = dict.fromkeys(block.arguments, -1)
        writes = _writes(block)
        for operation in operations(block)[:-1]:
            self._add(operation, operation in writes)

    def _add(self, operation: Any, is_write: bool) -> None:
        self.own.update(operation.results)
        values = [*operation.operands, *(captures(operation) if len(operation.regions) else ())]
        used = [v for v in dict.fromkeys(values) if not self.is_free(v)]
        if is_write:
            self.late.append(operation)
        elif not used and _costs_nothing(operation):
            self.free.update(operation.results)
        else:
            self.place.update(dict.fromkeys(operation.results, len(self.items)))
            self.items.append(operation)
            self.used.append(used)

    def is_free(self, v: Value) -> bool:
        """Return True if a value is there in the backward sweep anyway."""
        return v in self.free or v not in self.own

    @cached_property
    def choices(self) -> list[dict[int, Schedule]]:
        """Schedules of the items that have regions or call; the first has all the plain ones."""
        found: list[tuple[Schedule, dict[int, Schedule]]] = [(Schedule(), {})]
        for i, operation in enumerate(self.items):
            if operation.name not in (WHILE, MANUAL, CALL, *BRANCHES):
                continue
            options = self.planner.options(operation)
            rows = [(total + each, row | {i: each}) for total, row in found for each in options]
            kept = set(map(id, _few(total for total, _ in rows)))
            found = [row for row in rows if id(row[0]) in kept]
        return [row for _, row in found]

    def plain(self, choice: dict[int, Schedule]) -> Schedule:
        """Return the schedule that stores all that items need, with this choice for some."""
        return sum(choice.values(), Schedule(stored=sum(self.weights) + self.base))

    @cached_property
    def _cut(self) -> list[Value]:
        """The values that reverse mode stores: those that rules read, or a minimum cut of them.

        What is differentiated in place computes none again.
        """
        needed = {v: None for op in self.items for v in self._read_by(op) if not self.is_free(v)}
        return list(needed) if self.is_last else minimum_cut(list(needed), self._producers, _size)

    @cached_property
    def base(self) -> int:
        """Bytes of the arguments of the block that are stored."""
        return sum(_size(v) for v in self._cut if self.place[v] < 0)

    @cached_property
    def weights(self) -> list[int]:
        """Bytes that are stored of the results of each item."""
        weights = [0] * len(self.items)
        for v in self._cut:
            if self.place[v] >= 0:
                weights[self.place[v]] += _size(v)
        return weights

    @cached_property
    def _varying(self) -> set[Value]:
        """The values of the block that are not there anyway, for the edits."""
        return self.own - self.free

    @cached_property
    def _flops(self) -> list[int]:
        return list(map(self.planner.flops, self.items))

    def _read_by(self, operation: Any) -> Iterator[Value]:
        """Yield the values that the derivative of an op reads, as far as is known."""
        active = [v in self.planner.moving for v in operation.operands]
        if not self.planner.moves(operation):
            return
        if operation.name in (WHILE, MANUAL, *BRANCHES):
            yield from _used_inside(operation)
            return
        if operation.name == CALL:  # of a checkpoint; another one stores for itself
            function = self.planner.diff.functions[called(operation) or ""]
            if remat.CHECKPOINT in function.attributes:
                yield from operation.operands
            return
        if ops.view(operation) is not None:
            yield from operation.operands
            return
        rule = RULES.get(operation.name)
        if rule is not None and rule.linear in (jointly, apart):
            return
        if rule is not None and rule.by_result:
            yield operation.results[0]
            return
        is_linear = rule is not None and rule.linear(active)
        for v, moves in zip(operation.operands, active, strict=True):
            if build.info(v.type).bits and not (is_linear and moves):
                yield v

    def _producers(self, v: Value) -> list[Value] | None:
        if self.place[v] < 0 or v.owner.operation.name not in CHEAP:
            return None
        return [x for x in v.owner.operands if not self.is_free(x)]

    # ------------------------------------------------------------------------- segments

    def segmented(self, choice: dict[int, Schedule]) -> Iterator[Schedule]:
        """Yield schedules that compute segments again, of a few sizes, also in segments."""
        weights = [w + choice[i].stored if i in choice else w for i, w in enumerate(self.weights)]
        total, count = sum(weights), len(self.items)
        if not total or not self._may_repeat:
            return
        sums = [0, *itertools.accumulate(weights)]
        edits = tuple(edit for each in choice.values() for edit in each.edits)
        again = sum(each.again for each in choice.values())
        late: tuple[Edit, ...] = (partial(_move_to_end, self.late),) * bool(self.late)
        for levels in (1, 2, 3):
            for parts in _PARTS:
                if parts**levels > count or (parts == 1 and (self.is_last or levels > 1)):
                    continue
                limits = [_SLACK * total // parts**level for level in range(1, levels + 1)]
                is_guarded = self.is_last or levels > 1
                found = self._segments(0, count, limits, sums, choice, is_guarded, self.is_last)
                if found.edits:
                    cost = found.again + again
                    every = (*late, *found.edits, *edits)
                    yield Schedule(found.stored, found.peak, cost, every)

    @cached_property
    def _may_repeat(self) -> bool:
        return not any(map(self.planner.acts, self.items))

    def _segments(
        self,
        first: int,
        end: int,
        limits: Sequence[float],
        sums: Sequence[int],
        choice: dict[int, Schedule],
        is_guarded: bool,
        is_last: bool,
        given: Iterable[Value] = (),
    ) -> Schedule:
        """Return the schedule of items `first` to `end`, in segments of at most so many bytes.

        Args:
          limits: of a segment, of one in that, and so on.
          sums: bytes that all items before each one store.
          is_guarded: XLA would merge what runs again with the first run; see `outline`.
          is_last: the last segment is not computed again.
          given: values that are stored anyway.
        """
        stored: dict[Value, None] = {}
        peak, again, edits = 0, 0, list[Edit]()
        for a, b in self._cuts(first, end, limits[0], sums):
            entering = [v for v in self._entering(a, b) if v not in given]
            inside = sums[b] - sums[a]
            nested = max((choice[i].peak for i in range(a, b) if i in choice), default=0)
            found = Schedule(peak=inside + nested)
            if len(limits) > 1 and inside > limits[1]:
                known = {*given, *entering}
                found = self._segments(a, b, limits[1:], sums, choice, is_guarded, False, known)
            stored.update(dict.fromkeys(entering))
            peak = max(peak, found.bytes)
            again += found.again
            if not (is_last and b == end) and any(map(self.planner.moves, self.items[a:b])):
                again += sum(self._flops[a:b])
                inner = self.items[a:b]
                varying = self._varying if is_guarded else None
                edits.append(partial(checkpoints.outline, inner=inner, varying=varying))
            edits += found.edits
        return Schedule(sum(map(_size, stored)), peak, again, tuple(edits))

    def _cuts(
        self, first: int, end: int, limit: float, sums: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """Yield segments of items that store at most so many bytes, cut where few values pass."""
        while first < end:
            most = bisect.bisect_right(sums, sums[first] + limit, first + 1, end + 1) - 1
            most = max(most, first + 1)
            if most < end:
                least = bisect.bisect_left(sums, sums[first] + limit // 2, first + 1, most)
                most = min(range(most, least - 1, -1), key=self._passing.__getitem__)
            yield first, most
            first = most

    @cached_property
    def _passing(self) -> list[int]:
        """The bytes of the values that pass the border in front of each item."""
        change = [0] * (len(self.items) + 2)
        for v, end in self._last_use.items():
            change[self.place[v] + 1] += _size(v)
            change[end + 1] -= _size(v)
        return list(itertools.accumulate(change))

    @cached_property
    def _last_use(self) -> dict[Value, int]:
        return {v: i for i, used in enumerate(self.used) for v in used}

    def _entering(self, first: int, end: int) -> dict[Value, None]:
        """Return the values from in front of these items that they use."""
        values = itertools.chain.from_iterable(self.used[first:end])
        return {v: None for v in values if self.place[v] < first}


_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Lists the numbers of segments that a block is cut into."""
_SLACK = 1.1
"""Lets a segment be this much larger than such a part, so that none is left over."""


def _writes(block: Any) -> list[Any]:
    """Return the ops of a loop's body that write a slot of a stack."""
    owner = block.owner.operation
    if owner.name != WHILE:
        return []
    loop = read_loop(owner)
    return [loop.yields[stack.carry].owner.operation for stack in stacks_of(loop)]


def _used_inside(operation: Any) -> Iterator[Value]:
    """Yield the values from outside that regions use, but for what a loop carries and stores."""
    loop = read_loop(operation) if operation.name == WHILE else None
    for i, v in enumerate(operation.operands):
        if loop is None or loop.is_invariant(i):
            yield v
    yield from captures(operation)


def _costs_nothing(operation: Any) -> bool:
    """Return True if an op, of values that are there anyway, only shows them or counts."""
    is_of_integers = not any(build.inexact(v.type) for v in operation.results)
    return operation.name in (CHEAP if is_of_integers else VIEW)


def _move_to_end(inner: Sequence[Any], diff: Differentiation) -> None:
    """Move ops of one block to its end."""
    for operation in inner:
        operation.move_before(terminator(ir.InsertionPoint(operation).block))


def _size(v: Value) -> int:
    """Return the bytes of a value; none of a token or a tuple, one element for a dynamic size."""
    return abs(build.size_in_bytes(v.type)) if build.info(v.type).bits else 0
