"""Differentiate `stablehlo.while` in forward mode, and in reverse mode with stacked residuals.

Reverse mode runs a second loop from the last iteration to the first. The residuals that its body
needs are chosen by a minimum cut, and the primal loop stacks them, one slot per iteration.
Cotangents of loop-invariant values (weights, sliced inputs) are accumulated in place in the carry.
Loops whose trip count has no bound are in unbounded.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback._jax import ir
from pullback._jax.primitives import MAX_TRIP_COUNT
from pullback.autodiff.activity import analyze, numbered
from pullback.autodiff.batch_rules import MappedOp, along, batch
from pullback.autodiff.batching import one_by_one
from pullback.autodiff.cotangent_reach import reached
from pullback.autodiff.pending import Total, as_given
from pullback.autodiff.registry import Op, Row, Tangents, carried, distributed, jointly, rule
from pullback.autodiff.residuals import Residuals
from pullback.autodiff.reverse import Reverse, check_handed_on
from pullback.autodiff.specialized import Record
from pullback.ir import build, loop_carries
from pullback.ir.build import Value
from pullback.ir.purity import acts
from pullback.ir.regions import (
    block_of,
    blocks,
    captured_by,
    operations,
    remade,
    replace_terminator,
    terminator,
)
from pullback.ir.stacks import Stack, aliases, stacks_of
from pullback.ir.while_loops import Loop, read_loop
from pullback.rules.branches import taken
from pullback.rules.calls.func_call import before
from pullback.rules.loops.batched_stacks import Rows
from pullback.rules.loops.invariants import Invariants
from pullback.rules.loops.sums import Sums
from pullback.rules.loops.unbounded import Checkpointed, count_iterations
from pullback_runtime.ir._erasure import erase, spare

# ------------------------------------------------------------------------------- activity


@dataclass(frozen=True)
class Activity:
    """The carries that are active at any iteration, and the active captured values."""

    carries: list[bool]
    captured: list[Value]


def loop_activity(op: Op) -> Activity:
    """Return the least fixpoint of active carries: one more iteration does not enlarge it."""
    if op.info is not None:
        return op.info
    body = blocks(op.operation)[1]
    arguments, yields = list(body.arguments), list(terminator(body).operands)
    count = len(arguments)
    carries = list(op.active[:count])
    outside = [v for v, a in zip(op.operands[count:], op.active[count:], strict=True) if a]
    while True:
        active = numbered([*outside, *(a for a, c in zip(arguments, carries, strict=True) if c)])
        analyze(body, active, op.frame)
        grown = [c or y in active for c, y in zip(carries, yields, strict=True)]
        if grown == carries:
            op.info = Activity(carries, outside)
            return op.info
        carries = grown


@rule("stablehlo.while", linear=jointly, family="control", regions=True, hands_on=True)
class While:
    """The rule of loops; see above."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return loop_activity(op).carries

    @staticmethod
    def carry(op: Op, rows: Sequence[Row | None]) -> list[Row | None]:
        return _carry(op, rows)

    jvp = staticmethod(carried(carry))

    @staticmethod
    def reached(op: Op, results: Sequence[bool]) -> list[bool]:
        activity, body = loop_activity(op), blocks(op.operation)[1]
        arguments = zip(body.arguments, activity.carries, strict=True)
        active = numbered([*activity.captured, *(a for a, c in arguments if c)])
        records = analyze(body, active, op.frame)
        carries, free = _reached(activity, body, records, results)
        rest = op.operands[len(results) :]
        return [*(i in carries for i in range(len(results))), *(v in free for v in rest)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        loop = read_loop(op.operation)
        reverse = _Stacked if loop.slots is not None else _Unbounded
        return reverse(op, loop, cts).run()


# ----------------------------------------------------------------------------- forward mode


def _carry(op: Op, rows: Sequence[Row | None]) -> list[Row | None]:
    """Add the rows of the active carries to the carries."""
    frame, carries = op.frame, loop_activity(op).carries
    count = len(carries)
    pairs = zip(rows, op.operands, carries, strict=False)
    new = loop_carries.widened(
        op.operation, [t for row, v, c in pairs if c for t in frame.full(row, v)]
    )
    body = blocks(new)[1]
    arguments = list(body.arguments)
    inner = distributed(carries, arguments[count:], frame.width)
    known = [*zip(op.operands, rows, strict=True), *zip(arguments, inner, strict=False)]
    returned = frame.inside({v: row for v, row in known if row is not None}).rows(body)
    end = terminator(body)
    with build.inserting(ir.InsertionPoint(end), end.location):
        pairs = zip(returned, end.operands, carries, strict=False)
        found = [t for row, v, c in pairs if c for t in frame.full(row, v)]
    replace_terminator(body, [*end.operands, *found])
    results = list(new.results)
    frame.replace(op, results[:count])
    return distributed(carries, results[count:], frame.width)


# ----------------------------------------------------------------------------- reverse mode


def _reached(
    activity: Activity, body: Any, records: Sequence[Record], results: Sequence[bool]
) -> tuple[list[int], list[Value]]:
    """Return carries and captured values that cotangents of these results reach at some time."""
    arguments, yields = list(body.arguments), list(terminator(body).operands)
    pairs = enumerate(zip(results, activity.carries, strict=True))
    carries = {i for i, (has, active) in pairs if has and active}
    while True:
        found = reached(records, [yields[i] for i in carries])
        grown = carries | {i for i, a in enumerate(arguments) if a in found}
        if grown == carries:
            return sorted(carries), [v for v in activity.captured if v in found]
        carries = grown


class _ReversedLoop:
    """The analysis that both kinds of reverse loop begin with."""

    def __init__(
        self, op: Op, loop: Loop, cts: Tangents, stacks: Mapping[int, Stack] | None = None
    ) -> None:
        self.op, self.loop, self.cts = op, loop, cts
        self.stacks = stacks or {}
        self.outer = op.frame
        self.arguments = list(loop.body.arguments)
        self._indices = {argument: i for i, argument in enumerate(self.arguments)}
        self.frame = Reverse(self.outer.diff, self._primal, self.outer.linear, hands_on=True)
        activity = loop_activity(op)
        active = [a for a, c in zip(self.arguments, activity.carries, strict=True) if c]
        self.frame.analyze(loop.body, [*active, *activity.captured])
        given = [ct is not None for ct in cts]
        self.carries, self.free = _reached(activity, loop.body, self.frame.records, given)
        if self.outer.linear:
            self._check_linear()

    def _check_linear(self) -> None:
        """Raise NotLinearError if what a cotangent reaches starts or goes on with a constant."""
        op, loop = self.op, self.loop
        used = reached(self.frame.records, [loop.yields[i] for i in self.carries])
        given = {v for v, active in zip(op.operands, op.active, strict=True) if active}
        for i in self.carries:
            stack = self.stacks.get(i)
            if stack is None:
                end, stays = loop.yields[i], not loop.trip_count or self.arguments[i] in used
            else:
                end, stays = stack.update, not loop.trip_count or stack.count < stack.slots
            check_handed_on(op, end, self.frame.active, f"carry {i} after an iteration")
            if stays:
                check_handed_on(op, loop.inits[i], given, f"carry {i} before the first iteration")

    def _primal(self, v: Value) -> Value:
        raise NotImplementedError


class _Unbounded(_ReversedLoop):
    """A reverse loop with checkpoints, for a trip count without a bound."""

    def run(self) -> list[Value | None]:
        op, activity = self.op, loop_activity(self.op)
        if not self.carries and not self.free:
            return [None] * len(op.operands)
        operands = len(op.operands)
        invariant = [self.loop.is_invariant(i) for i in range(len(activity.carries))]
        reverse = Checkpointed(op, self.cts, activity.carries, invariant, self.carries, self.free)
        count_iterations(op)
        found = reverse.run(self.outer.primal(op.results[-1]))
        assert len(found) == operands
        return [ct if a else None for ct, a in zip(found, op.active, strict=True)]


class _Stacked(_ReversedLoop):
    """A reverse loop with one slot of residuals per iteration, for a trip count with a bound."""

    def __init__(self, op: Op, loop: Loop, cts: Tangents) -> None:
        self.slots = max(loop.slots or 0, 1)
        self.integer = build.scalar("i32" if (loop.trip_count or 0) < 2**31 else "i64")
        stacks = stacks_of(loop)
        if loop.trip_count is None:  # nor is it known which slots of the first buffer stay
            stacks = [stack for stack in stacks if not op.active[stack.carry]]
        self.aliases = aliases(stacks)
        self.invariants = Invariants(op, self._outside, op.frame.diff.functions)
        self.in_front: dict[Value, Value] = {}  # what the reverse body has from there
        super().__init__(op, loop, cts, {stack.carry: stack for stack in stacks})
        self.stacked = [i for i in self.carries if i in self.stacks]
        self.carries = [i for i in self.carries if i not in self.stacks]

    def _primal(self, v: Value) -> Value:
        return self.residuals(v)

    def _leaf(self, v: Value) -> Value | None:
        """Return a primal value that the reverse body has without a residual; None for others."""
        now = self.frame.current(v)
        found = self._outside(now)
        if found is None:
            if (stack := self._alias(v)) is not None:
                return self._stacked_value(v, stack)
            counter = self.loop.counter
            if counter is not None and v == self.arguments[counter.index]:
                return self._counter_value(v)
            found = self.invariants.find(now)
        if found is None:
            return None
        self.in_front[v] = found
        return self.outer.primal(found)

    def _outside(self, v: Value) -> Value | None:
        """Return the value before the loop that equals one of the body; None for others."""
        if not isinstance(v, ir.BlockArgument):
            return v if block_of(v.owner) != self.loop.body else None
        index = self._indices.get(v)
        if index is None:
            return v
        return self.loop.inits[index] if self.loop.is_invariant(index) else None

    def _alias(self, v: Value) -> Stack | None:
        """Return the stack that holds a value of the body, or what the sweep has replaced it by."""
        if v in self.aliases:
            return self.aliases[v]
        current = self.frame.current
        return next((s for old, s in self.aliases.items() if current(old) == v), None)

    def _stacked_value(self, v: Value, stack: Stack) -> Value:
        """Read a value that the loop stacks anyway from its result."""
        buffer = self.outer.primal(self.outer.current(self.op.results[stack.carry]))
        with build.inserting(self.residuals.ip):
            slot = stack.read(buffer, self.iteration)
            return build.reshape(slot, build.shape(v))

    def _counter_value(self, v: Value) -> Value:
        """Emit start + step * iteration in the counter's own type, which may be unsigned."""
        counter: Any = self.loop.counter
        with build.inserting(self.residuals.ip):
            i = build.convert(self.iteration, build.info(v.type).element)
            if abs(counter.step) != 1:
                i = build.mul(i, abs(counter.step))
            if counter.step < 0:
                return build.sub(build.integer(counter.start, i), i)
            return i if counter.start == 0 else build.add(i, counter.start)

    def run(self) -> list[Value | None]:
        if not self.carries and not self.free:
            return self._cotangents({}, {})
        loop = self._emit_reverse_loop()
        self.invariants.after_sweep()
        chosen = self.residuals.choose(self.frame.compared)
        for v, found in self.in_front.items():
            if self.frame.current(v) in self.residuals.exact:
                self.outer.compared.add(found)
        self._store(chosen)
        results = self._results(loop)[1:]
        by_carry = dict(zip(self.carries, results, strict=False))
        by_value = dict(zip(self.free, results[len(self.carries) :], strict=True))
        return self._cotangents(by_carry, by_value)

    def _results(self, loop: Any) -> list[Value]:
        count = self.loop.trip_count
        if count is None or count < 2:
            return list(loop.results)
        return Sums(loop, self.iteration, count).put_behind(self.outer.diff.functions)

    def _cotangents(
        self, by_carry: dict[int, Value], by_value: dict[Value, Value]
    ) -> list[Value | None]:
        """Return one cotangent per operand and captured value of the loop."""
        count = len(self.arguments)
        found = [by_carry.get(i) for i in range(count)]
        for i in self.stacked:
            if self.op.active[i]:
                found[i] = self.stacks[i].without_written(self.cts[i])
        found += [by_value.get(v) for v in self.op.operands[count:]]
        return [ct if a else None for ct, a in zip(found, self.op.active, strict=True)]

    def _emit_reverse_loop(self) -> Any:
        inits = [build.full(self.integer, 0)]
        inits += [self.op.instantiate(self.cts[i], self.op.results[i]) for i in self.carries]
        inits += [self.op.instantiate(None, v) for v in self.free]
        self.total = self._total()
        loop, cond, body = build.while_(inits)
        if self.loop.trip_count is None:  # for the next derivative
            loop.attributes[MAX_TRIP_COUNT] = self.op.attributes[MAX_TRIP_COUNT]
        with build.inserting(ir.InsertionPoint(cond)):
            build.return_([build.compare("LT", cond.arguments[0], self.total)])
        with build.inserting(ir.InsertionPoint(body)):
            self._emit_reverse_body(body)
        is_same = [a.type for a in body.arguments] == [v.type for v in inits]
        return loop if is_same else loop_carries.retyped(loop)

    def _total(self) -> Value:
        """Return the number of iterations that ran."""
        if self.loop.trip_count is not None:
            return build.full(self.integer, self.loop.trip_count)
        count_iterations(self.op)
        return self.outer.primal(self.op.results[-1])

    def _emit_reverse_body(self, body: Any) -> None:
        done, *arguments = body.arguments
        last = build.sub(self.total, 1)
        self.iteration = build.sub(last, done)
        current, stores_all = self.frame.current, self.frame.diff.stores_all
        self.residuals = Residuals(self.loop.body, self._leaf, current, stores_all)
        frame, loop = self.frame, self.loop
        for v, ct in zip(self.free, arguments[len(self.carries) :], strict=True):
            frame.accumulate(v, Total(ct))
        for i, ct in zip(self.carries, arguments, strict=False):
            if loop.is_invariant(i):
                v = self.arguments[i]
                frame.accumulate(v, Total(ct) if ct.type == v.type else as_given(ct, v.type))
            else:
                frame.seed(loop.yields[i], ct)
        for stack in (self.stacks[i] for i in self.stacked):
            if stack.update in frame.active:
                slot = stack.read(self.cts[stack.carry], self.iteration)
                frame.seed(stack.update, slot)
        frame.run()
        frame.assert_carried([*self.free, *(self.arguments[i] for i in self.carries)])
        found = [frame.cotangent(self.arguments[i]) for i in self.carries]
        found = [build.instantiate(ct, v) for ct, v in zip(found, arguments, strict=False)]
        found += [frame.cotangent(v) for v in self.free]
        found = [build.converted(ct, v.type) for ct, v in zip(found, arguments, strict=True)]
        build.return_([build.add(done, 1), *found])

    # ------------------------------------------------------------------------- residuals

    def _store(self, chosen: list[Value]) -> None:
        """Let the primal loop stack `chosen`; the reverse body reads slot `iteration`."""
        values = [self.frame.current(v) for v in chosen]
        buffers = []
        if values:
            buffers = self._stack(values)
        stored = {}
        with build.inserting(self.residuals.ip):
            for v, buffer in zip(chosen, buffers, strict=True):
                stored[v] = loop_carries.read(self.outer.primal(buffer), self.iteration)
        self.residuals.settle(stored)

    def _stack(self, values: list[Value]) -> list[Value]:
        op = self.op
        count = len(op.results)
        with before(op):
            new = loop_carries.stacked(op.operation, values, self.slots)
        results = list(new.results)
        self.outer.replace(op, results[:count])
        return results[count : count + len(values)]


# --------------------------------------------------------------------------------- batches


@batch("stablehlo.while", captures=True)
def _batch(op: MappedOp) -> list[Value]:
    """Run as long as any item goes on; those that do not keep their carries.

    A loop with effectful callbacks runs for one item after the other if items differ in how long
    they go on: an item that has left the loop must not have effects.
    """
    frame, operation = op.frame, op.operation
    flags = frame.loop_flags(op)
    apart = frame.ends_apart(op, flags)
    if apart and frame.diff.found_in(operation, acts) is not None:
        pairs = zip(one_by_one(op), op.values, flags, strict=True)
        return [result if flag else unchanged for result, unchanged, flag in pairs]
    aside = spare(operation)
    cond, body = blocks(operation)
    unchanged = [y == a for y, a in zip(terminator(body).operands, body.arguments, strict=True)]
    rows = Rows(op, flags, apart)
    inner = frame.inner()
    rows.take(inner, cond)
    inner.run(cond)
    per_item = inner.finish(cond)[0]
    if per_item:
        condition = _move_condition(aside, body)
        end = terminator(cond)
        with build.inserting(ir.InsertionPoint(end), end.location):
            some = build.reduce(end.operands[0], False, (0,), "stablehlo.or")
        replace_terminator(cond, [some])
    else:
        erase(aside)
    inner = frame.inner()
    rows.take(inner, body)
    rows.read(inner)
    if per_item:
        go = _run_where_going_on(op, body, inner, condition, unchanged)
    else:
        inner.run(body)
    end = terminator(body)
    with build.inserting(ir.InsertionPoint(end), end.location):
        results = inner.wanted(end.operands, [flag or None for flag in flags])
        if per_item:
            results = [
                x if same else build.select(along(go, build.shape(y)[1:]), y, x) if flag else y
                for x, y, flag, same in zip(body.arguments, results, flags, unchanged, strict=True)
            ]
    inner.close(body, results)
    inits = rows.inits()
    new = remade(operation, [v.type for v in inits], inits)
    return rows.results(new.results)


def _run_where_going_on(
    op: MappedOp,
    body: Any,
    inner: Any,
    condition: tuple[Sequence[Any], Value],
    unchanged: Sequence[bool],
) -> Value:
    """Batch the body with zero derivatives for items that have ended; return who goes on.

    An infinite slope would make NaN of their cotangents, which are zero. What all items share is
    left as it is: it would need a copy for each. So are loop-invariant values that are larger than
    all the others, such as inputs of which an iteration reads a part: each iteration would pass
    over all of it.
    """
    steps, goes_on = condition
    captured, rest = captured_by([body]), operations(body)[len(steps) :]
    inner.visit(steps)
    go = inner.values[goes_on]
    fixed = {*captured, *itertools.compress(body.arguments, unchanged)}
    values = [*body.arguments, *captured]
    own = [v for v in values if v in inner.values and build.inexact(v.type)]
    size = {v: build.size_in_bytes(inner.values[v].type) for v in own}
    room = sum(size[v] for v in own if v not in fixed)
    with build.inserting(ir.InsertionPoint(rest[0]), op.operation.location):
        moving = [v for v in own if v not in fixed or size[v] <= room]
        inner.values |= {v: taken(op, go, inner.values[v]) for v in moving}
    inner.visit(rest)
    return go


def _move_condition(loop: Any, body: Any) -> tuple[list[Any], Value]:
    """Move the condition of `loop`, which is erased, to the start of `body`.

    Return its ops and its result.
    """
    cond = blocks(loop)[0]
    for old, new in zip(list(cond.arguments), body.arguments, strict=True):
        old.replace_all_uses_with(new)
    first = body.operations[0].operation
    *steps, end = [view.operation for view in cond.operations]
    goes_on = end.operands[0]
    for step in steps:
        step.move_before(first)
    erase(loop)
    return steps, goes_on
