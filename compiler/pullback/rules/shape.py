"""Differentiate ops that move elements: they are linear; their transposes move elements back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, along, batch, batch_alike, repeated, shifted
from pullback.autodiff.registry import InPlace, Op, Part, Tangents, linear
from pullback.autodiff.slices import in_place
from pullback.autodiff.zeros import is_zero_constant
from pullback.ir import build, indexing
from pullback.ir.build import Dims, Value
from pullback.ir.indexing import Dimensions
from pullback.rules.loops import batched_stacks


def integers(op: Op | MappedOp, name: str) -> tuple[int, ...]:
    """Return the integers of an array attribute."""
    return build.integers(op.attributes[name])


def reshape(op: Op, cts: Tangents) -> list[Value | None]:
    """Reshape the cotangent to the operand's shape."""
    return [build.reshape(cts[0], op.shape(0))]


def transpose(op: Op, cts: Tangents) -> list[Value | None]:
    """Permute the dimensions of the cotangent by the inverse permutation."""
    return [build.permute(cts[0], _inverse(integers(op, "permutation")))]


@_jax.cached
def _inverse(permutation: Dims) -> Dims:
    return tuple(permutation.index(i) for i in range(len(permutation)))


def reverse(op: Op, cts: Sequence[Any]) -> list[Value | None]:
    """Reverse the cotangent along the same dimensions."""
    (ct,) = cts
    dimensions = {"dimensions": op.attributes["dimensions"]}
    return [build.emit1("stablehlo.reverse", ct.type, [ct], dimensions)]


def broadcast_in_dim(op: Op, cts: Tangents) -> list[Value | None]:
    """Sum over the dimensions that were added or stretched."""
    return [unbroadcast(op, cts[0])]


def unbroadcast(op: Any, ct: Any) -> Value | None:
    """Transpose a `stablehlo.broadcast_in_dim`, given as an Op or an operation."""
    types = op.operands[0].type, op.results[0].type
    summed, order, reshaped = _unbroadcast(op.attributes["broadcast_dimensions"], *types)
    ct = build.reduce_sum(ct, summed)
    if order is not None:
        ct = build.permute(ct, order)
    if reshaped is None:
        return ct
    type = build.with_element(reshaped, build.info(ct.type).element)
    return build.emit1("stablehlo.reshape", type, [ct])


@_jax.cached
def _unbroadcast(dimensions: Any, operand: Any, result: Any) -> tuple[Dims, Dims | None, Any]:
    """Return the dimensions to sum and, where needed, the order of the others and their type."""
    kept, small, big = build.integers(dimensions), build.shape_of(operand), build.shape_of(result)
    stretched = [d for i, d in enumerate(kept) if small[i] == 1 and big[d] != 1]
    left = [i for i, d in enumerate(kept) if d not in stretched]
    by_position = sorted(left, key=lambda i: kept[i])
    in_order = left == by_position
    # What was added with size 1 has one element to sum: a reshape drops it.
    added = [d for d in range(len(big)) if d not in kept and not (in_order and big[d] == 1)]
    summed = tuple(sorted([*added, *stretched]))
    order = None if in_order else tuple(by_position.index(i) for i in left)
    reshaped = len(big) - len(summed) != len(small) or len(left) != len(small)
    return summed, order, operand if reshaped else None


def broadcast(op: Op, cts: Tangents) -> list[Value | None]:
    """Sum over the leading dimensions that were added."""
    return [build.reduce_sum(cts[0], range(len(integers(op, "broadcast_sizes"))))]


linear("stablehlo.reshape", reshape, reads=(), hands_on=True)
linear("stablehlo.transpose", transpose, reads=("permutation",), hands_on=True)
linear("stablehlo.reverse", reverse, hands_on=True)
linear(
    "stablehlo.broadcast_in_dim",
    broadcast_in_dim,
    reads=("broadcast_dimensions",),
    hands_on=True,
)
linear("stablehlo.broadcast", broadcast, hands_on=True)


# -------------------------------------------------------------------- parts and their wholes


def slice_(op: Op, cts: Tangents) -> list[object]:
    """Add into the operand's slice: in place if it has no strides, else by padding."""
    (ct,) = cts
    start, strides = integers(op, "start_indices"), integers(op, "strides")
    if all(s == 1 for s in strides):
        return [in_place(Part(start, ct))]
    sizes = build.shape(ct)
    ends = [a + (n - 1) * s + 1 if n else a for a, n, s in zip(start, sizes, strides, strict=True)]
    high = [d - e for d, e in zip(op.shape(0), ends, strict=True)]
    return [build.pad(ct, 0, start, high, [s - 1 for s in strides])]


def pad(op: Op, cts: Tangents) -> list[Value | None]:
    """Crop the edges and drop what lies between; the rest belongs to the padding value."""
    (ct,) = cts
    low, high = integers(op, "edge_padding_low"), integers(op, "edge_padding_high")
    steps = [i + 1 for i in integers(op, "interior_padding")]
    inner = build.pad(ct, 0, [-p for p in low], [-p for p in high])
    operand = build.slice_(inner, [0] * len(low), build.shape(inner), steps)
    value = None
    if op.active[1]:
        # Not the difference of two totals: of large ones, little is left in a narrow type.
        inside = build.pad(operand, 0, low, high, [i - 1 for i in steps])
        value = build.total(build.sub(ct, inside))
    return [operand, value]


def concatenate(op: Op, cts: Tangents) -> list[Value | None]:
    """Return the part of the cotangent that lies where each operand went."""
    (ct,) = cts
    dimension = build.number(op, "dimension")
    found, offset = [], 0
    for i, active in enumerate(op.active):
        size = op.shape(i)[dimension]
        found.append(build.part(ct, dimension, offset, offset + size) if active else None)
        offset += size
    return found


linear("stablehlo.slice", slice_, hands_on=True)
linear("stablehlo.pad", pad, hands_on=True)
linear("stablehlo.concatenate", concatenate, reads=("dimension",), hands_on=True)


# -------------------------------------------------------------------------- dynamic positions


def dynamic_slice(op: Op, cts: Tangents) -> list[object]:
    """Add into the operand's slice, in place; both ops clamp their starts alike.

    Where the slice was overwritten later, its cotangent is zero, and the new one is written without
    an addition. So a loop that adds in place, as this rule's own, passes its accumulator's
    cotangent on as it is.
    """
    (ct,) = cts
    starts = [op.operand(i) for i in range(1, len(op.operands))]
    sizes = integers(op, "slice_sizes")

    def update(total: Value) -> Value:
        before = _without_zeros(total, sizes, starts)
        if before is not None:
            if _is_slice(ct, before, starts):
                return before
            return build.dynamic_update_slice(before, ct, starts)
        added = ct
        if not is_zero_constant(total):
            added = build.add(build.dynamic_slice(total, starts, sizes), ct)
        return build.dynamic_update_slice(total, added, starts)

    return [InPlace(update), *[None] * len(starts)]


def _without_zeros(total: Value, sizes: Sequence[int], starts: list[Value]) -> Value | None:
    """Return the value before zeros were written over this slice; None if none were."""
    if isinstance(total, ir.BlockArgument) or total.owner.name != "stablehlo.dynamic_update_slice":
        return None
    before, update, *places = total.owner.operands
    same = places == starts and build.shape(update) == tuple(sizes)
    return before if same and is_zero_constant(update) else None


def _is_slice(v: Value, whole: Value, starts: list[Value]) -> bool:
    """Return True if `v` is the slice of `whole` at these starts, perhaps reshaped and back."""
    part = v
    while build.is_result_of(part, "stablehlo.reshape"):
        part = part.owner.operands[0]
    if part.type != v.type or not build.is_result_of(part, "stablehlo.dynamic_slice"):
        return False
    return list(part.owner.operands) == [whole, *starts]


def dynamic_update_slice(op: Op, cts: Sequence[Any]) -> list[Value | None]:
    """Slice the cotangent for the update; write zeros over the slice for the operand."""
    (ct,) = cts
    starts = [op.operand(i) for i in range(2, len(op.operands))]
    operand = update = None
    if op.active[1]:
        update = build.dynamic_slice(ct, starts, op.shape(1))
    if op.active[0]:
        blank = build.zeros(build.with_shape(ct.type, op.shape(1)))
        operand = build.dynamic_update_slice(ct, blank, starts)
    return [operand, update, *[None] * len(starts)]


linear("stablehlo.dynamic_slice", dynamic_slice, hands_on=True)
linear("stablehlo.dynamic_update_slice", dynamic_update_slice, hands_on=True)


# --------------------------------------------------------------------------------- batches
batch_alike("stablehlo.reshape")


@batch("stablehlo.transpose")
def _batch_transpose(op: MappedOp) -> list[Value]:
    """Permute the item's dimensions; the batch axis stays first."""
    return op.again(permutation=build.i64s((0, *shifted(integers(op, "permutation")))))


@batch("stablehlo.reverse")
def _batch_reverse(op: MappedOp) -> list[Value]:
    """Reverse the same dimensions of each item."""
    return op.again(dimensions=build.i64s(shifted(integers(op, "dimensions"))))


@batch("stablehlo.broadcast_in_dim")
def _batch_broadcast_in_dim(op: MappedOp) -> Value:
    """Map the batch axis of the operand to that of the result."""
    return spread(op, integers(op, "broadcast_dimensions"))


@batch("stablehlo.broadcast")
def _batch_broadcast(op: MappedOp) -> Value:
    """Add the dimensions after the batch axis, by `broadcast_in_dim`: this op cannot say that."""
    added = len(integers(op, "broadcast_sizes"))
    return spread(op, range(added, added + len(op.shape(0))))


def spread(op: MappedOp, dimensions: Sequence[int]) -> Value | None:
    """Broadcast the first operand of each item; `dimensions` are its dimensions in the result."""
    shape = build.shape_of(op.type())
    return build.broadcast_in_dim(op.operand(0), shape, (0, *shifted(dimensions)))


@batch("stablehlo.slice")
def _batch_slice(op: MappedOp) -> Value:
    """Slice the same part of each item."""
    return part(op, *(integers(op, name) for name in ("start_indices", "limit_indices", "strides")))


def part(op: MappedOp, start: Sequence[int], limit: Sequence[int], strides: Sequence[int]) -> Value:
    """Slice the first operand of each item."""
    return build.slice_(op.operand(0), (0, *start), (op.size, *limit), (1, *strides))


@batch("stablehlo.pad")
def _batch_pad(op: MappedOp) -> Value:
    """Pad each item, and not along the batch axis."""
    names = "edge_padding_low", "edge_padding_high", "interior_padding"
    return padded(op, *(integers(op, name) for name in names))


def padded(op: MappedOp, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Value:
    """Pad the first operand of each item with the second; by a select if that is batched."""
    x, value = op.operand(0), op.values[1]
    edges = (0, *low), (0, *high), (0, *interior)
    if not op.batched[1]:
        return build.pad(x, value, *edges)
    result = build.pad(x, 0, *edges)
    ones = build.full(build.tensor(op.shape(0), build.boolean()), True)
    inside = repeated(build.pad(ones, False, low, high, interior), op.size)
    return build.select(inside, result, along(value, build.shape(result)[1:]))


@batch("stablehlo.concatenate")
def _batch_concatenate(op: MappedOp) -> list[Value]:
    """Concatenate along the same dimension of each item."""
    dimension = build.number(op, "dimension")
    return op.again(dimension=build.i64(dimension + 1))


@batch("stablehlo.dynamic_slice")
def _batch_dynamic_slice(op: MappedOp) -> Value:
    """Slice all items at once; if each item has a start of its own, gather."""
    if (slot := batched_stacks.read_slot(op)) is not None:
        return slot
    x, sizes = op.values[0], integers(op, "slice_sizes")
    if not any(op.batched[1:]):
        return build.dynamic_slice(x, [_zero_start(op, 1), *op.values[1:]], (op.size, *sizes))
    indices, dims = _starts(op, 1)
    return indexing.gather_batch(x, indices, dims, sizes, op.batched[0], True)


@batch("stablehlo.dynamic_update_slice")
def _batch_dynamic_update_slice(op: MappedOp) -> Value:
    """Update all items at once; if each item has a start of its own, scatter.

    A scatter drops what is outside, so its indices are clamped first.
    """
    if (written := batched_stacks.write_slot(op)) is not None:
        return written
    x, update = op.operand(0), op.operand(1)
    if not any(op.batched[2:]):
        return build.dynamic_update_slice(x, update, [_zero_start(op, 2), *op.values[2:]])
    indices, dims = _starts(op, 2)
    indices = indexing.clamp(indices, op.shape(0), dims.batched(False, True), op.shape(1))
    dims = dims.batched(True, True)
    return indexing.scatter(x, indices, update, dims, indexing.replace, unique=True)


def _zero_start(op: MappedOp, first: int) -> Value:
    """Return a zero start along the batch axis, of the type of the operands from `first` on."""
    others = op.values[first:]
    return build.full(others[0].type if others else build.scalar("i32"), 0)


def _starts(op: MappedOp, first: int) -> tuple[Value, Dimensions]:
    """Return the start indices of all items, (size, rank), and the dimensions of one gather."""
    columns = [build.reshape(op.operand(i), (op.size, 1)) for i in range(first, len(op.values))]
    places = tuple(range(len(columns)))
    return build.concatenate(columns, 1), Dimensions(places, (), (), (), places, 0)
