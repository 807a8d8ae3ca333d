"""Differentiate chlo.ragged_dot, a product of groups of rows with a matrix for each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import _jax
from pullback._jax import chlo
from pullback.autodiff.batch_rules import MappedOp, batch, shifted, to_front
from pullback.autodiff.registry import Op, Rule, register, separately
from pullback.ir import build
from pullback.ir.build import Value, and_, compare, select
from pullback.rules.derived import expanded


def _dense(op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    """Emit the same product with the group as one more dimension, and zeros outside of each group.

    Source: jax/_src/lax/lax.py, `_ragged_dot_general_impl`.
    """
    lhs, rhs, sizes = operands
    d = chlo.RaggedDotDimensionNumbers(op.attributes["ragged_dot_dimension_numbers"])
    (ragged,) = d.lhs_ragged_dimensions
    batch, contract = _dimensions(d)
    settings = _settings(op)
    if ragged in batch[0]:
        return [build.dot_general(lhs, rhs, batch=batch, contract=contract, **settings)]
    count = build.shape(sizes)[-1]
    lead = _leading(d, build.rank(lhs))
    if ragged in contract[0]:
        before = contract[0].index(ragged)
        partner = contract[1][before]
        lead_rhs = [*batch[1], *contract[1][:before]]
        left = _by_group(lhs, ragged, sizes, lead, count)
        right = _by_group(rhs, partner, sizes, lead_rhs, count)
        shifted: Any = [[0, *(i + 1 for i in dims)] for dims in batch]
        inner: Any = [[i + 1 for i in dims] for dims in contract]
        return [build.dot_general(left, right, batch=shifted, contract=inner, **settings)]
    left = _by_group(lhs, ragged, sizes, lead, count)
    (group,) = d.rhs_group_dimensions
    inner = [*(i + 1 for i in contract[0]), 0], [*contract[1], group]
    outer = [i + 1 for i in batch[0]], batch[1]
    return [build.dot_general(left, rhs, batch=outer, contract=inner, **settings)]


def _dimensions(d: Any) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
    """Return the batch and contracting dimensions of each operand."""
    batch = list(d.lhs_batching_dimensions), list(d.rhs_batching_dimensions)
    contract = list(d.lhs_contracting_dimensions), list(d.rhs_contracting_dimensions)
    return batch, contract


def _leading(d: Any, rank: int) -> list[int]:
    """Return the dimensions of the left operand for which group sizes may differ."""
    (ragged,), ((batch, _), (contract, _)) = d.lhs_ragged_dimensions, _dimensions(d)
    free = [i for i in range(rank) if i not in batch and i not in contract]
    kind = next(dims for dims in (batch, contract, free) if ragged in dims)
    before = kind[: kind.index(ragged)]
    return before if kind is batch else [*batch, *before]


def _settings(op: Op) -> dict[str, Any]:
    found: dict[str, Any] = {"element": build.info(op.result_type).element}
    if "precision_config" in op.attributes:  # the same words in both dialects
        words = str(op.attributes["precision_config"]).replace("#chlo<", "#stablehlo<")
        found["precision"] = build.attr(words)
    return found


def _by_group(x: Value, ragged: int, sizes: Value, lead: list[int], count: int) -> Value:
    """Emit [group, *x]: x where its position along `ragged` belongs to the group, else 0.

    `sizes` is [group], or starts with the dimensions `lead` of x.
    """
    shape = (count, *build.shape(x))
    where = [*(d + 1 for d in lead), 0] if build.rank(sizes) > 1 else [0]
    ends = _cumulative(sizes)
    starts = build.sub(ends, sizes)
    position = build.iota(build.with_shape(sizes.type, shape), ragged + 1)
    starts, ends = (build.broadcast_in_dim(v, shape, where) for v in (starts, ends))
    inside = and_(compare("LE", starts, position), compare("LT", position, ends))
    return select(inside, build.broadcast_in_dim(x, shape, range(1, len(shape))), None)


def _cumulative(sizes: Value) -> Value:
    """Emit the running sum along the last dimension."""
    shape = build.shape(sizes)
    rank, count = len(shape), shape[-1]
    square = build.with_shape(sizes.type, (*shape, count))
    lower = compare("LE", build.iota(square, rank), build.iota(square, rank - 1))
    spread = build.broadcast_in_dim(sizes, (*shape, count), [*range(rank - 1), rank])
    return build.reduce_sum(select(lower, spread, None), [rank])


register(
    Rule(
        "chlo.ragged_dot",
        *expanded(_dense),
        separately,
        __name__,
        "bilinear",
        keeps_type=True,
        expand=_dense,
    )
)


# --------------------------------------------------------------------------------- batches


@batch("chlo.ragged_dot")
def _batch(op: MappedOp) -> Value:
    """Add a batch dimension; a single list of group sizes may serve all items."""
    d = chlo.RaggedDotDimensionNumbers(op.attributes["ragged_dot_dimension_numbers"])
    batch, contract = _dimensions(d)
    (ragged,) = d.lhs_ragged_dimensions
    sizes = op.values[2]
    if op.batched[2] and build.rank(sizes) == 2:
        lead = [op.shape(0)[i] for i in _leading(d, len(op.shape(0)))]
        size, count = build.shape(sizes)
        sizes = build.broadcast_in_dim(sizes, (size, *lead, count), (0, len(lead) + 1))
    elif build.rank(sizes) > 1:
        sizes = op.operand(2)
    numbers = chlo.RaggedDotDimensionNumbers.get(
        [0, *shifted(batch[0])],
        [0, *shifted(batch[1])],
        shifted(contract[0]),
        shifted(contract[1]),
        shifted([ragged]),
        shifted(d.rhs_group_dimensions),
        context=_jax.context(),
    )
    size, *dims = build.shape_of(op.type())
    groups_first = ragged in contract[0]  # the result has a matrix for each group
    type = build.with_shape(op.type(), (dims[0], size, *dims[1:])) if groups_first else op.type()
    operands = [op.operand(0), op.operand(1), sizes]
    (found,) = op.again(operands, [type], ragged_dot_dimension_numbers=numbers)
    return to_front(found, int(groups_first))
