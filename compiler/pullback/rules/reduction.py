"""Differentiate stablehlo.reduce: sums, extrema, products, and bodies of any kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch, shifted
from pullback.autodiff.registry import (
    Jvp,
    Mask,
    Op,
    Row,
    Rule,
    Tangents,
    Vjp,
    by_variant,
    jointly,
    never,
    on_tangents,
    unsupported,
)
from pullback.ir import bounds, build
from pullback.ir.build import Value, add, and_, compare, div, mul, select
from pullback.rules.associative import check_associative
from pullback.rules.body_patterns import body_name, check_scalars, lone_name
from pullback.rules.calls.func_call import vjp_of_function
from pullback.rules.scalar_bodies import jvp_of_function, reduce_as_function
from pullback.rules.shape import integers

WORST = {"stablehlo.maximum": -math.inf, "stablehlo.minimum": math.inf}


# ------------------------------------------------------------------------------------- sums


def _sum_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    check_scalars(op, op.operands[-1])
    return on_tangents(op, tangents)


def _sum_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    check_scalars(op, op.operands[-1])
    (ct,) = cts
    return [spread(op, ct) if op.active[0] else None, build.total(ct) if op.active[1] else None]


def spread(op: Op, v: Value) -> Value:
    """Broadcast a value of the shape of a reduction's result to that of its operand."""
    reduced, shape = integers(op, "dimensions"), op.shape(0)
    kept = [i for i in range(len(shape)) if i not in reduced]
    if -1 not in shape:
        return build.broadcast_in_dim(v, shape, kept)
    shape = bounds.bounds(op.operands[0].type)
    if -1 in shape:
        raise unsupported(op, "with a dynamic shape", "refine the shapes: stablehlo-refine-shapes")
    return bounds.cut(build.broadcast_in_dim(bounds.whole(v), shape, kept), bounds.sizes(op.x))


# ---------------------------------------------------------------------------------- extrema


class _Winners:
    """The elements that a maximum or minimum comes from; those that tie share it, as in JAX.

    The initial value, if it `counts`, has a share only where no element equals the result.
    """

    def __init__(self, op: Op, counts: bool) -> None:
        check_scalars(op, op.operands[-1])
        self.element = build.info(op.operands[0].type).element
        self.number = build.counting(op.operands[0].type)
        mask = compare("EQ", op.x, spread(op, op.result))
        self.dimensions = integers(op, "dimensions")
        self.share = build.convert(mask, self.element)
        one_each = self.share if self.number == self.element else build.convert(mask, self.number)
        self.count = build.reduce_sum(one_each, self.dimensions)
        self.none: Value | None = None
        if counts:
            start = build.broadcast_in_dim(op.rhs, build.shape(self.count), ())
            self.none = and_(compare("EQ", self.count, 0.0), compare("EQ", start, op.result))
            self.count = select(self.none, build.full_like(self.count, 1), self.count)

    def average(self, total: Value | None) -> Value | None:
        """Divide a total over all elements that tie by their number."""
        return build.convert(div(build.convert(total, self.number), self.count), self.element)


def _extremum_jvp(counts: bool, op: Op, tangents: Tangents) -> list[Value | None]:
    winners = _Winners(op, counts)
    t, start = tangents
    found = None
    if t is not None:
        theirs = build.convert(mul(t, winners.share), winners.number)
        found = winners.average(build.reduce_sum(theirs, winners.dimensions))
    if start is not None and winners.none is not None:
        start = build.broadcast_in_dim(start, build.shape(winners.count), ())
        found = add(found, select(winners.none, start, None))
    return [found]


def _extremum_vjp(counts: bool, op: Op, cts: Tangents) -> list[Value | None]:
    winners = _Winners(op, counts)
    (ct,) = cts
    x = start = None
    if op.active[0]:
        x = mul(spread(op, winners.average(ct)), winners.share)
    if op.active[1] and winners.none is not None:
        start = build.total(select(winners.none, ct, None))
    return [x, start]


_SPREADING = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.reshape"})


def is_all(v: Value, number: float) -> bool:
    """Return True if every element of a value is the constant `number`."""
    while not isinstance(v, ir.BlockArgument) and v.owner.name in _SPREADING:
        v = v.owner.operands[0]
    if not build.is_constant(v) or build.info(v.type).kind != "f":
        return False
    return v.owner.attributes["value"] == build.splat(v.type, number)


# --------------------------------------------------------------------------- any other body


def _steps_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    return jvp_of_function(op, _tree_of_steps(op), tangents)


def _steps_carry(op: Op, rows: Sequence[Row | None]) -> Sequence[Row | None]:
    return op.frame.through(op, _tree_of_steps(op), rows)


def _steps_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    return vjp_of_function(op, _tree_of_steps(op), cts)


def _tree_of_steps(op: Op) -> str:
    name = reduce_as_function(op)
    check_associative(op)
    return name


def _reduction(jvp: Jvp, vjp: Vjp, linear: Callable[[Mask], bool], **more: Any) -> Rule:
    return Rule("stablehlo.reduce", jvp, vjp, linear, __name__, "reduction", **more)


SUM = _reduction(
    _sum_jvp,
    _sum_vjp,
    jointly,
    keeps_type=True,
    reads=("dimensions",),
    copies=True,
    hands_on=True,
)
CONSTRAINED_SUM = replace(SUM, reads=None)
"""Its region holds sharding constraints as well, which refer to a mesh of the module."""
EXTREMUM, FROM_WORST = (
    _reduction(
        partial(_extremum_jvp, counts), partial(_extremum_vjp, counts), never, compares=True, **more
    )
    for counts, more in ((True, {}), (False, {"keeps_type": True, "reads": ("dimensions",)}))
)
"""Of any initial value, and of one that is worse than all numbers, which most have."""
STEPS = _reduction(_steps_jvp, _steps_vjp, jointly, carry=_steps_carry)


def variant(op: Op) -> Rule:
    """Return the rule for the body: sum, extremum, or any other one as a tree of its steps."""
    region = op.operation.regions[0]
    lone = lone_name(region.blocks[0])
    if lone == "stablehlo.add":
        return SUM
    body = lone or body_name(region)
    if body == "stablehlo.add":
        return CONSTRAINED_SUM
    if body in WORST:
        is_worst = is_all(op.operands[1], WORST[body]) and 0 not in op.shape(0)
        return FROM_WORST if is_worst else EXTREMUM
    check_scalars(op, op.operands[-1])
    return STEPS


by_variant("stablehlo.reduce", variant, reads=("dimensions",))


@batch("stablehlo.reduce")
def _batch(op: MappedOp) -> list[Value] | None:
    """Reduce the same dimensions of each item; all items have to share the initial values."""
    operands = op.leading(len(op.values) // 2)
    dimensions = shifted(build.integers(op.attributes["dimensions"]))
    return operands and op.again(operands, dimensions=build.i64s(dimensions))
