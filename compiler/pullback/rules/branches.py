"""Differentiate branches (`stablehlo.case`, `stablehlo.if`); loops are in loops/."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pullback._jax import ir
from pullback.autodiff.activity import analyze, numbered
from pullback.autodiff.batch_rules import MappedOp, along, batch, batch_type, repeated
from pullback.autodiff.cotangent_reach import reached, reached_in
from pullback.autodiff.pending import as_given
from pullback.autodiff.registry import Op, Row, Tangents, carried, distributed, jointly, rule
from pullback.autodiff.residuals import Residuals
from pullback.autodiff.reverse import Reverse, check_handed_on
from pullback.ir import build, loop_carries, ops
from pullback.ir.build import Value, inexact
from pullback.ir.purity import callback
from pullback.ir.regions import (
    BRANCHES,
    blocks,
    captured_by,
    captures,
    remade,
    replace_terminator,
    terminator,
)
from pullback.rules.calls.func_call import before
from pullback_runtime.ir._erasure import erase


def active_operands(op: Op) -> list[Value]:
    return [v for v, a in zip(op.operands, op.active, strict=True) if a]


class Branches:
    """The rule of branches: exactly one region runs, and reads outside values by capturing them."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        flags = [False] * len(op.results)
        for block in blocks(op.operation):
            active = numbered(active_operands(op))
            analyze(block, active, op.frame)
            for i, v in enumerate(terminator(block).operands):
                flags[i] |= v in active
        return flags

    @staticmethod
    def reached(op: Op, results: Sequence[bool]) -> list[bool]:
        active = active_operands(op)
        found = set().union(*(reached_in(op, b, active, results) for b in blocks(op.operation)))
        return [a and v in found for v, a in zip(op.operands, op.active, strict=True)]

    @staticmethod
    def carry(op: Op, rows: Sequence[Row | None]) -> list[Row | None]:
        """Let each branch return the rows of its results after these."""
        frame = op.frame
        known = {v: row for v, row in zip(op.operands, rows, strict=True) if row is not None}
        found = [frame.inside(known).rows(block) for block in blocks(op.operation)]
        flags = [any(row is not None for row in column) for column in zip(*found, strict=True)]
        for block, returned in zip(blocks(op.operation), found, strict=True):
            _extend(frame, block, returned, flags)
        pairs = zip(op.results, flags, strict=True)
        types = [type for r, f in pairs if f for type in frame.row_types(r.type)]
        with before(op):
            new = remade(op.operation, [*(r.type for r in op.results), *types])
        results = list(new.results)
        frame.replace(op, results[: len(flags)])
        return distributed(flags, results[len(flags) :], frame.width)

    jvp = staticmethod(carried(carry))

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        """Emit an op of the same index whose branches transpose the primal ones."""
        captured = captures(op.operation)
        branches = [_Branch(op, block, cts, captured) for block in blocks(op.operation)]
        wrt = [v for v in active_operands(op) if any(v in b.reached for b in branches)]
        index = op.operand(0)
        if not wrt:
            return [None] * len(op.operands)
        backward = build.emit(op.name, [v.type for v in wrt], [index], regions=len(branches))
        for branch, region in zip(branches, list(backward.regions), strict=True):
            branch.emit(region, wrt)
        if any(branch.hands_on for branch in branches):
            backward = _with_common_types(backward, wrt, [branch.found for branch in branches])
        _store_residuals(op, branches)
        found = dict(zip(wrt, backward.results, strict=True))
        return [found.get(v) for v in op.operands]


def _extend(frame: Any, block: Any, rows: Sequence[Row | None], flags: Sequence[bool]) -> None:
    """Let a branch also return the rows that are flagged; those it has not are zeros."""
    end = terminator(block)
    outs = list(end.operands)
    with build.inserting(ir.InsertionPoint(end), end.location):
        found = zip(rows, outs, flags, strict=True)
        values = [t for row, v, flag in found if flag for t in frame.full(row, v)]
    replace_terminator(block, [*outs, *values])


class _Branch:
    """One branch while its backward branch is made."""

    def __init__(self, op: Op, block: Any, cts: Tangents, captured: Sequence[Value]) -> None:
        self.op, self.block = op, block
        self.captured = set(captured)
        outer = op.frame
        self.frame = Reverse(outer.diff, self._primal, outer.linear, hands_on=True)
        self.frame.analyze(block, active_operands(op))
        outs = list(terminator(block).operands)
        self.returned = {} if outer.linear else dict(zip(outs, op.results, strict=True))
        given = [(i, v, cts[i]) for i, v in enumerate(outs) if cts[i] is not None]
        if outer.linear:
            for i, v, _ in given:
                check_handed_on(op, v, self.frame.active, f"result {i} of a branch")
        self.seeds = [(v, ct) for _, v, ct in given if v in self.frame.active]
        self.reached = reached(self.frame.records, [v for v, _ in self.seeds])

    def _primal(self, v: Value) -> Value:
        return self.residuals(v)

    def _leaf(self, v: Value) -> Value | None:
        """Return a value that needs no residual: captured, or returned anyway; None for others."""
        frame = self.op.frame
        if v in self.returned:
            return frame.primal(frame.current(self.returned[v]))
        return frame.primal(v) if v in self.captured else None

    def emit(self, region: Any, wrt: Sequence[Value]) -> None:
        block = region.blocks.append()
        with build.inserting(ir.InsertionPoint(block)):
            current, stores_all = self.frame.current, self.frame.diff.stores_all
            self.residuals = Residuals(self.block, self._leaf, current, stores_all)
            for v, ct in self.seeds:
                self.frame.seed(v, ct)
            self.frame.run()
            self.op.frame.compared.update(self.frame.compared & self.captured)
            self.frame.assert_carried(wrt)
            self.found = [self.frame.cotangent(v) for v in wrt]
            pairs = list(zip(self.found, wrt, strict=True))
            build.return_([self.op.instantiate(ct, v) for ct, v in pairs])
        self.hands_on = any(ct is not None and as_given(ct, v.type) is not ct for ct, v in pairs)
        self.chosen = self.residuals.choose(self.frame.compared)


def _with_common_types(
    backward: Any, wrt: Sequence[Value], found: Sequence[Sequence[Value | None]]
) -> Any:
    """Return the backward op with branches that agree on the type of each value's cotangent.

    Where they differ, it is the type of the primal value.
    """
    types = []
    for v, column in zip(wrt, zip(*found, strict=True), strict=True):
        elements = {build.info(ct.type).element for ct in column if ct is not None}
        element = elements.pop() if len(elements) == 1 else build.info(v.type).element
        types.append(build.with_element(v.type, element))
    for block in blocks(backward):
        end = terminator(block)
        with build.inserting(ir.InsertionPoint(end), end.location):
            results = [build.converted(v, t) for v, t in zip(end.operands, types, strict=True)]
        replace_terminator(block, results)
    new = remade(backward, types)
    erase(backward)
    return new


def _store_residuals(op: Op, branches: Sequence[_Branch]) -> None:
    """Let the op return the residuals of its branches; branches share results of equal type."""
    frame = op.frame
    rows = [[branch.frame.current(v) for v in branch.chosen] for branch in branches]
    with before(op):
        new, places = loop_carries.returning(op.operation, rows)
    results = list(new.results)
    frame.replace(op, results[: len(op.results)])
    for branch, row, place in zip(branches, rows, places, strict=True):
        pairs = zip(branch.chosen, row, strict=True)
        branch.residuals.settle({v: frame.primal(results[place[now]]) for v, now in pairs})


for _name in BRANCHES:
    rule(_name, linear=jointly, family="control", regions=True, hands_on=True)(Branches)


# --------------------------------------------------------------------------------- batches


@batch(*BRANCHES, captures=True)
def _batch(op: MappedOp) -> list[Value] | None:
    """Batch the branch that all items take; if the index is batched, run all branches and select.

    Branches that contain callbacks then run for one item after the other: an item must not call
    what is in a branch that it does not take, for that may raise an error.
    """
    if op.batched[0]:
        calls_back = op.frame.diff.found_in(op.operation, callback)
        return _batch_choice(op) if calls_back is None else None
    frame, operation = op.frame, op.operation
    rows = [frame.flags(block) for block in blocks(operation)]
    flags = [any(column) for column in zip(*rows, strict=True)]
    for block in blocks(operation):
        inner = frame.inner()
        inner.run(block)
        inner.finish(block, [flag or None for flag in flags])
    pairs = zip(op.results, flags, strict=True)
    types = [batch_type(type, op.size) if flag else type for type, flag in pairs]
    return list(remade(operation, types, op.values).results)


def _batch_choice(op: MappedOp) -> list[Value]:
    branches, index = blocks(op.operation), op.values[0]
    if op.name == "stablehlo.if":
        chosen = [index]
    else:
        chosen = [build.compare("EQ", index, i) for i in range(len(branches) - 1)]
    others = functools.reduce(build.or_, chosen) if chosen else None
    last = None if others is None else build.emit1("stablehlo.not", others.type, [others])
    found = [
        in_place(op, block, _taken_in(op, block, here))
        for block, here in zip(branches, [*chosen, last], strict=True)
    ]
    results = found[-1]  # that of any other index
    for here, branch in list(zip(chosen, found, strict=False))[::-1]:
        pairs = zip(branch, results, strict=True)
        results = [build.select(along(here, build.shape(x)[1:]), x, y) for x, y in pairs]
    return results


def _taken_in(op: MappedOp, block: Any, here: Value | None) -> dict[Value, Value]:
    """Return the values that a branch uses, with zero derivatives for items that do not take it.

    Where the slope of such an item is infinite, its cotangent, which is zero, would become NaN.

    Values that all items share get a batch axis for that, as in JAX. `here` is the mask of the
    items that take the branch; None if all do.
    """
    used = [] if here is None else captured_by([block])
    known = op.frame.values
    moving = [v for v in used if inexact(v.type) and (v in known or not build.is_constant(v))]
    return {v: taken(op, here, known.get(v) or repeated(v, op.size)) for v in moving}


def taken(op: MappedOp, here: Value, v: Value) -> Value:
    """Return a batched value with zero tangents for the items that the mask `here` leaves out."""
    diff, types = op.frame.diff, [here.type, v.type]

    def make() -> tuple[str, str]:
        loc = op.operation.location
        primal, block = diff.add_function("taken", types, types[1:], loc)
        with build.inserting(ir.InsertionPoint(block), loc):
            build.emit("func.return", (), [block.arguments[1]])
        jvp, block = diff.add_function("taken.jvp", [*types, v.type], [v.type, v.type], loc)
        with build.inserting(ir.InsertionPoint(block), loc):
            flag, x, t = block.arguments
            moved = build.select(along(flag, build.shape(t)[1:]), t, build.zeros(t.type))
            build.emit("func.return", (), [x, moved])
        return primal, jvp

    primal, jvp = diff.cached(("taken", *types), make)
    return ops.call(ops.CustomJVPCall, primal, [here, v], types[1:], jvp=jvp).result


def in_place(op: MappedOp, block: Any, values: dict[Value, Value] | None = None) -> list[Value]:
    """Inline a block of the op before the op and return its results.

    `values` replaces values that the block captures.
    """
    inner = op.frame.inner()
    inner.values |= values or {}
    inner.run(block)
    end = terminator(block)
    with build.inserting(ir.InsertionPoint(end), end.location):
        results = inner.wanted(end.operands, [True] * len(end.operands))
    erase(end)
    inner.erase_dead()
    for view in list(block.operations):
        view.operation.move_before(op.operation)
    return results
