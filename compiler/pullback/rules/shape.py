"""Ops that move elements around: linear, and their transposes move them back."""

from __future__ import annotations

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.rules.registry import InPlace, Op, Tangents, linear


def integers(op: Op, name: str) -> list[int]:
    """An integer-array attribute."""
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))


def reshape(op: Op, cts: Tangents) -> list[Value | None]:
    """The same elements in the operand's shape."""
    return [build.reshape(cts[0], op.shape(0))]


def transpose(op: Op, cts: Tangents) -> list[Value | None]:
    """The inverse permutation."""
    permutation = integers(op, "permutation")
    return [build.permute(cts[0], [permutation.index(i) for i in range(len(permutation))])]


def broadcast_in_dim(op: Op, cts: Tangents) -> list[Value | None]:
    """Sum over the dimensions that were added or stretched."""
    (ct,) = cts
    kept, small = integers(op, "broadcast_dimensions"), op.shape(0)
    big = build.shape(ct)
    stretched = [d for i, d in enumerate(kept) if small[i] == 1 and big[d] != 1]
    summed = [d for d in range(len(big)) if d not in kept or d in stretched]
    ct = build.reduce_sum(ct, summed)
    left = [i for i, d in enumerate(kept) if d not in stretched]
    order = sorted(left, key=lambda i: kept[i])
    ct = build.permute(ct, [order.index(i) for i in left])
    return [build.reshape(ct, small)]


def dynamic_slice(op: Op, cts: Tangents) -> list[object]:
    """Add into the operand's slice, in place."""
    (ct,) = cts
    starts = [op.operand(i) for i in range(1, len(op.operands))]
    sizes = integers(op, "slice_sizes")

    def update(total: Value) -> Value:
        here = build.dynamic_slice(total, starts, sizes)
        return build.dynamic_update_slice(total, build.add(here, ct), starts)

    return [InPlace(update), *[None] * len(starts)]


linear("stablehlo.reshape", reshape)
linear("stablehlo.transpose", transpose)
linear("stablehlo.broadcast_in_dim", broadcast_in_dim)
linear("stablehlo.dynamic_slice", dynamic_slice)


def dynamic_update_slice(op: Op, cts: Tangents) -> list[Value | None]:
    """The update's slice of the cotangent; zeros there for the operand."""
    (ct,) = cts
    starts = [op.operand(i) for i in range(2, len(op.operands))]
    operand = update = None
    if op.active[1]:
        update = build.dynamic_slice(ct, starts, op.shape(1))
    if op.active[0]:
        operand = build.dynamic_update_slice(ct, build.zeros(op.operands[1].type), starts)
    return [operand, update, *[None] * len(starts)]


linear("stablehlo.dynamic_update_slice", dynamic_update_slice)
