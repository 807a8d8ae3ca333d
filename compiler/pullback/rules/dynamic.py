"""Differentiate dynamic ops: with static result types, each stands for a static op.

What a dynamic op takes as an operand must be a constant if the result type does not determine it.
The only op that makes dynamic shapes is `set_dimension_size`, and they are bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch
from pullback.autodiff.checks import missing_rule
from pullback.autodiff.registry import (
    NONDIFFERENTIABLE,
    RULES,
    Op,
    Tangents,
    only_in,
    rule,
    separately,
    unsupported,
)
from pullback.ir import bounds, build
from pullback.ir.build import Value
from pullback.ir.while_loops import integer_constant
from pullback.rules.body_patterns import body_name
from pullback.rules.derived import by_expansion
from pullback.rules.shape import integers, padded, part, spread

Operands = Sequence[Value]


def constants(op: Op, *positions: int) -> list[list[int]]:
    """Return the values of the operands at these positions, which must be constants."""
    return [_constant(op, i) for i in positions]


def _constant(op: Op, index: int) -> list[int]:
    found = _literal(op.operands[index])
    if found is None:
        raise unsupported(
            op, f"whose operand {index} is not a constant", "make the sizes of this step static"
        )
    return found


def _literal(v: Value) -> list[int] | None:
    """Return the elements of an array of integers if it is a constant; None if not."""
    if not build.is_constant(v):
        return None
    values = np.asarray(ir.DenseElementsAttr(v.owner.attributes["value"]))
    return [int(n) for n in np.broadcast_to(values, build.shape(v)).ravel()]


def _reshape(op: Op, operands: Operands) -> Value:
    return build.emit1("stablehlo.reshape", op.result_type, operands[:1])


def _broadcast_in_dim(op: Op, operands: Operands) -> Value:
    attributes = {"broadcast_dimensions": op.attributes["broadcast_dimensions"]}
    return build.emit1("stablehlo.broadcast_in_dim", op.result_type, operands[:1], attributes)


def _pad(op: Op, operands: Operands) -> Value:
    low, high, interior = constants(op, 2, 3, 4)
    return build.pad(operands[0], operands[1], low, high, interior)


def _slice(op: Op, operands: Operands) -> Value:
    start, limit, strides = constants(op, 1, 2, 3)
    return build.slice_(operands[0], start, limit, strides)


def _convolution(op: Op, operands: Operands) -> Value:
    (padding,) = constants(op, 2)
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    attributes = {**dict(op.attributes.items()), "padding": build.i64_rows(pairs)}
    return build.emit1("stablehlo.convolution", op.result_type, operands[:2], attributes)


for _name, _expand, _linear in (
    ("dynamic_reshape", _reshape, only_in(0)),
    ("dynamic_broadcast_in_dim", _broadcast_in_dim, only_in(0)),
    ("dynamic_pad", _pad, only_in(0, 1)),
    ("real_dynamic_slice", _slice, only_in(0)),
    ("dynamic_conv", _convolution, separately),
):
    by_expansion(f"stablehlo.{_name}", _expand, linear=_linear, family="dynamic")


# --------------------------------------------------------------------------- bounded dimensions


@rule("stablehlo.set_dimension_size", linear=only_in(0), keeps_type=True, family="dynamic")
class SetDimensionSize:
    """The rule of resizing: elements inside both sizes pass; the others have zero derivatives."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        _check_bounds(op)
        _check_users(op)
        return [True]

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        SetDimensionSize.activity(op)
        dimension, before, after = _sizes(op)
        return [_resized(tangents[0], dimension, before, after)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        dimension, before, after = _sizes(op)
        return [_resized(cts[0], dimension, after, before), None]


def _resized(v: Value, dimension: int, old: bounds.Sizes, new: bounds.Sizes) -> Value:
    """Resize a tangent or cotangent: both directions do the same, so this is its own transpose."""
    v, size = bounds.whole(v), old[dimension]
    if size is not None:
        v = build.select(bounds.inside(v, dimension, size), v, None)
    return bounds.cut(v, new)


def _sizes(op: Op) -> tuple[int, bounds.Sizes, bounds.Sizes]:
    """Return the dimension, and the sizes of operand and result."""
    dimension = build.number(op, "dimension")
    before: bounds.Sizes = [None] * len(op.shape(0))
    if -1 in op.shape(0):
        before = bounds.sizes(op.x)
    after = list(before)
    dynamic = build.shape_of(op.result_type)[dimension] < 0
    after[dimension] = op.operand(1) if dynamic else None
    return dimension, before, after


def _check_bounds(op: Op) -> None:
    """Check that both types have the same bounds, and that a static result has the full size."""
    type = op.operands[0].type
    limits, found = bounds.bounds(type), bounds.bounds(op.result_type)
    if -1 in limits or limits != found:
        raise unsupported(
            op, f"from {type} to {op.result_type}", "give both types the same sizes or bounds"
        )
    if op.operation.parent.name != "func.func":
        raise unsupported(op, "in a loop or branch", "set the size outside of it")
    dimension = build.number(op, "dimension")
    static = build.shape_of(op.result_type)[dimension] >= 0
    if static and integer_constant(op.operands[1]) != limits[dimension]:
        raise unsupported(
            op,
            f"to another size than that of its result type {op.result_type}",
            f"give the result a bound instead: tensor<?x…, #stablehlo.bounds<{limits[dimension]}>>",
        )


def _check_users(op: Op) -> None:
    """Check that users are elementwise ops or sums: rules of other ops assume static shapes."""
    parent, values = op.operation.parent, list(op.results)
    seen: set[Value] = set()
    while values:
        v = values.pop()
        if v in seen or -1 not in build.shape(v):
            continue
        seen.add(v)
        for use in v.uses:
            operation = use.owner.operation
            if operation.parent != parent or not _knows_bounds(operation):
                raise missing_rule(operation, operation.name, " of a dynamic shape")
            if operation.name not in NONDIFFERENTIABLE:
                values += operation.results


def _knows_bounds(operation: Any) -> bool:
    name = operation.name
    if name in _KNOW_BOUNDS or name in NONDIFFERENTIABLE:
        return True
    if name == "stablehlo.reduce":
        return body_name(operation.regions[0]) == "stablehlo.add"
    if name not in RULES or RULES[name].family != "elementwise":
        return False
    values = [*operation.operands, *operation.results]
    return len({build.with_element(v.type, build.boolean()) for v in values}) == 1


_KNOW_BOUNDS = {"stablehlo.set_dimension_size", "stablehlo.convert", "func.return"}


# --------------------------------------------------------------------------------- batches
@batch("stablehlo.dynamic_reshape")
def _batch_reshape(op: MappedOp) -> Value:
    return build.reshape(op.operand(0), build.shape_of(op.type()))


@batch("stablehlo.dynamic_broadcast_in_dim")
def _batch_broadcast_in_dim(op: MappedOp) -> Value:
    return spread(op, integers(op, "broadcast_dimensions"))


@batch("stablehlo.dynamic_pad")
def _batch_pad(op: MappedOp) -> Value | None:
    sizes = _literals(op, 2)
    return None if sizes is None else padded(op, *sizes)


@batch("stablehlo.real_dynamic_slice")
def _batch_slice(op: MappedOp) -> Value | None:
    sizes = _literals(op, 1)
    return None if sizes is None else part(op, *sizes)


def _literals(op: MappedOp, first: int) -> list[list[int]] | None:
    """Return the constant operands from `first` on; None if one is batched or no constant."""
    found = [] if any(op.batched[first:]) else [_literal(v) for v in op.values[first:]]
    values = [v for v in found if v is not None]
    return values if len(values) == len(op.values) - first else None


@batch("stablehlo.get_dimension_size")
def _batch_get_dimension_size(op: MappedOp) -> Value:
    """Return the size as a constant that all items share."""
    return build.full(op.results[0], op.shape(0)[build.number(op, "dimension")])


@batch("stablehlo.set_dimension_size")
def _batch_set_dimension_size(op: MappedOp) -> list[Value] | None:
    """Set the same dimension of each item if the size is shared; else run item by item."""
    if op.batched[1]:
        return None
    dimension = build.i64(build.number(op, "dimension") + 1)
    return op.again([op.operand(0), op.values[1]], dimension=dimension)
