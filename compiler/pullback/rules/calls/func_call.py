"""Differentiate func.call; and helpers for all rules that call a derived function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback._jax import ir, remat
from pullback._jax.ordering import ORDERED
from pullback.autodiff.batch_rules import MappedOp, batch, batch_type
from pullback.autodiff.checkpoints import GUARDED
from pullback.autodiff.cotangent_reach import reached_in
from pullback.autodiff.diagonal import diagonal_results
from pullback.autodiff.forward import jvp_function
from pullback.autodiff.functions import SplitFunction, split
from pullback.autodiff.registry import Op, Row, Tangents, jointly, rule
from pullback.autodiff.state import Differentiation, call
from pullback.autodiff.zeros import is_nan, stays_zero
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.inline import emit_call
from pullback.ir.masks import mask_of
from pullback.ir.symbols import callee
from pullback.rules.calls.checkpoint_policy import recomputation, with_marks_outside


def present(values: Sequence[Value | None]) -> list[Value]:
    return [v for v in values if v is not None]


def scatter(flags: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """Return a list with `values` at the positions flagged and None elsewhere."""
    rest = iter(values)
    return [next(rest) if flag else None for flag in flags]


def before(op: Op) -> Any:
    """Enter an insertion point in the primal block, before the op."""
    return build.inserting(ir.InsertionPoint(op.operation), op.operation.location)


# ------------------------------------------------------------------------------- func.call


@rule("func.call", linear=jointly, family="control", hands_on=True)
class Call:
    """The rule of func.call: derive f once per activity; call it as often as the primal."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return op.frame.diff.function_activity(callee(op.operation), mask_of(op.active), op.frame)

    @staticmethod
    def reached(op: Op, results: Sequence[bool]) -> list[bool]:
        return reached_by_function(op, callee(op.operation), results)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        name = callee(op.operation)
        if ORDERED in op.frame.diff.function(name).attributes:
            return [None] * len(op.results)
        return jvp_of_function(op, name, tangents)

    @staticmethod
    def carry(op: Op, rows: Sequence[Row | None]) -> Sequence[Row | None]:
        name = callee(op.operation)
        if ORDERED in op.frame.diff.function(name).attributes:
            return [None] * len(op.results)
        return op.frame.through(op, name, rows)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return vjp_of_function(op, callee(op.operation), cts)

    @staticmethod
    def diagonal(op: Op, cts: Tangents) -> bool:
        return call_is_diagonal(op, callee(op.operation), cts)


def reached_by_function(op: Op, name: str, results: Sequence[bool]) -> list[bool]:
    """Return the operands that get cotangents if the op calls @name on them."""
    diff = op.frame.diff

    def compute() -> list[bool]:
        arguments = list(diff.block(name).arguments)
        active = [a for a, moves in zip(arguments, op.active, strict=True) if moves]
        found = reached_in(op, diff.block(name), active, results)
        return [a in found for a in arguments]

    key = "reached", name, mask_of(op.active), mask_of(results), op.frame.linear
    return diff.cached(key, compute)


@batch("func.call")
def _batch_call(op: MappedOp) -> list[Value]:
    """Call the batched function; results that all items share stay unbatched."""
    return call_again(op, "callee")


def call_again(
    op: MappedOp, names: str, wanted: Sequence[bool | None] | None = None, **changes: Any
) -> list[Value]:
    """Call the batched version of a function that an attribute names.

    `wanted` says which results have to be batched; None where the function decides.
    """
    name, types = called_again(op, names, wanted)
    return op.again(op.values, types, **{names: build.symbol(name)}, **changes)


def called_again(
    op: MappedOp, names: str, wanted: Sequence[bool | None] | None = None
) -> tuple[str, list[ir.Type]]:
    """Return the batched version of the function that such a call calls, and its result types."""
    function = ir.FlatSymbolRefAttr(op.attributes[names]).value
    name, found = op.frame.batching.function(function, op.batched, wanted)
    types = [batch_type(t, op.size) if f else t for t, f in zip(op.results, found, strict=True)]
    return name, types


def jvp_call(
    diff: Differentiation, name: str, mask: str, operands: Sequence[Value], tangents: Tangents
) -> tuple[list[Value], list[Value | None]]:
    """Call the derived jvp of @name; return its results and their tangents or `Refused`s."""
    derived, flags = jvp_function(diff, name, mask)
    results = call(diff, derived, [*operands, *present(tangents)])
    rest = iter(results[len(flags) :])
    return results[: len(flags)], [next(rest) if f is True else f or None for f in flags]


def jvp_of_function(op: Op, name: str, tangents: Tangents) -> list[Value | None]:
    """Return the tangents of an op that calls @name on its operands."""
    results, found = jvp_call(op.frame.diff, name, mask_of(op.active), op.operands, tangents)
    op.frame.replace(op, results)
    return found


def vjp_of_function(op: Op, name: str, cts: Tangents) -> list[Value | None]:
    """Return the cotangents of an op that calls @name on its operands."""
    pair = _split_call(op, name, cts)
    found = _recompute(op, pair, cts) if _runs_again(op, name) else _store(op, pair, cts)
    return scatter(op.active, scatter(pair.nonzero, found))


def call_is_diagonal(op: Op, name: str, cts: Tangents) -> bool:
    """Return True if the backward function of such a call is a diagonal map of the cotangents."""
    backward = _split_call(op, name, cts).backward
    return all(diagonal_cotangents(op, backward, len(present(cts))))


def diagonal_cotangents(op: Op, backward: str, count: int) -> list[bool]:
    """Return which results of a function are diagonal maps of its last `count` arguments."""
    diff = op.frame.diff
    residuals = len(diff.block(backward).arguments) - count
    return diagonal_results(diff, backward, "0" * residuals + "1" * count)


def _runs_again(op: Op, name: str) -> bool:
    """Return True if reverse mode computes @name a second time."""
    return remat.CHECKPOINT in op.frame.diff.function(name).attributes and not op.frame.linear


def _split_call(op: Op, name: str, cts: Tangents) -> SplitFunction:
    frame = op.frame
    return split(
        frame.diff,
        with_marks_outside(frame.diff, name) if _runs_again(op, name) else name,
        mask_of(op.active),
        mask_of([ct is not None for ct in cts]),
        frame.linear,
        _constants(op) if frame.linear else (),
        may_lose=frame.linear,
        types=op.wide,
    )


def _constants(op: Op) -> tuple[tuple[int, float], ...]:
    """Return the operands that are certainly zero or NaN: they make more of the call linear."""
    found: list[tuple[int, float]] = []
    for i, (v, active) in enumerate(zip(op.operands, op.active, strict=True)):
        if not active and -1 not in build.shape(v):
            if stays_zero(v, op.frame.diff.functions):
                found.append((i, 0))
            elif is_nan(v, op.frame.diff.functions) and build.info(v.type).kind == "f":
                found.append((i, math.nan))
    return tuple(found)


def _store(op: Op, pair: SplitFunction, cts: Tangents) -> list[Value]:
    """Replace the call by the forward function, and call the backward one on its residuals."""
    frame = op.frame
    with before(op):
        arguments = [
            v for v, a in zip(op.operands, op.active, strict=True) if not (frame.linear and a)
        ]
        results = call(frame.diff, pair.forward, arguments)
        outs = dict(zip(pair.kept, results, strict=False))
        new = [outs.get(i) for i in range(len(op.results))]
        new = [v or frame.diff.stand_in(r) for v, r in zip(new, op.results, strict=True)]
    frame.replace(op, new)
    residuals = frame.residuals(results[len(pair.kept) :], pair.compared)
    return call(frame.diff, pair.backward, [*residuals, *present(cts)])


def _recompute(op: Op, pair: SplitFunction, cts: Tangents) -> list[Value]:
    """Rematerialize a `jax.checkpoint`: keep arguments and marked values, and rerun forward.

    The results are those of the forward function as well: the next derivative is that of what a
    rule computes forward, which differs from the function's where a rule is false on purpose.
    The XLA for CPUs of jaxlib 0.10 takes barriers away before it merges equal ops: what a branch
    returns keeps them apart.
    """
    frame, name = op.frame, callee(op.operation)
    guarded = _guarded(frame.diff.function(name))
    saving, again, count = recomputation(frame.diff, pair, guarded is not None)
    with before(op):
        outs = emit_call(frame.diff.function(saving), op.operands)
    frame.replace(op, outs[: len(op.results)])
    kept = [frame.primal(v) for v in (*op.operands, *outs[len(outs) - count :])]
    values = [*kept, *present(cts)]
    fenced = build.emit("stablehlo.optimization_barrier", [v.type for v in values], values).results
    if guarded:
        sizes = [build.size_in_bytes(v.type) for v in present(cts)]
        fenced = _through_branch(fenced, [*guarded, len(kept) + sizes.index(min(sizes))])
    residuals = call(frame.diff, again, fenced[: len(kept)])
    found = call(frame.diff, pair.backward, [*residuals, *fenced[len(kept) :]])
    if guarded and len(found) > 1:  # all of them now, not some much later
        return _through_branch(found, range(len(found)))
    return found


def _guarded(function: Any) -> list[int] | None:
    """Return which arguments of a checkpoint that the pass has written are copied; else None."""
    if GUARDED not in function.attributes:
        return None
    return [ir.IntegerAttr(i).value for i in ir.ArrayAttr(function.attributes[GUARDED])]


def _through_branch(values: Sequence[Value], positions: Sequence[int]) -> list[Value]:
    """Return values, some of them copied in a branch that is always taken, unknown to XLA."""
    copied = [values[i] for i in positions]
    types = [v.type for v in copied]
    always = build.full(build.scalar("i1"), True)
    hidden = build.emit("stablehlo.optimization_barrier", [always.type], [always]).result
    branches = build.emit("stablehlo.if", types, [hidden], regions=2)
    taken, other = (region.blocks.append() for region in branches.regions)
    with build.inserting(ir.InsertionPoint(taken)):
        build.return_(copied)
    with build.inserting(ir.InsertionPoint(other)):
        build.return_([build.zeros(type) for type in types])
    found = dict(zip(positions, branches.results, strict=True))
    return [found.get(i, v) for i, v in enumerate(values)]
