"""Differentiate gathers and scatters.

A gather clamps its start indices and a scatter drops windows that are outside of the operand. So
the transpose of a gather scatters at clamped indices, and the transpose of a scatter masks what it
gathers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback.autodiff.batch_rules import MappedOp, batch
from pullback.autodiff.registry import (
    InPlace,
    Op,
    Rule,
    Tangents,
    by_its_parts,
    by_variant,
    jointly,
    linear,
    never,
    only_in,
    unsupported,
)
from pullback.ir import build, indexing
from pullback.ir.build import Value, add, compare, div, mul, neg, or_, select
from pullback.ir.indexing import Dimensions
from pullback.ir.purity import is_used
from pullback.rules.body_patterns import applied, body_name, check_scalars
from pullback.rules.derived import by_expansion, expanded, transposed
from pullback.rules.scalar_bodies import lift

# ---------------------------------------------------------------------------------- gather


def gather(op: Op, cts: Tangents) -> list[object]:
    """Add the cotangent into the windows that were read, in place.

    Source: jax/_src/lax/slicing.py, `_gather_transpose_rule`; indices are clamped, as gather does.
    """
    (ct,) = cts
    dims = Dimensions.of_gather(op.attributes["dimension_numbers"])
    shape = op.shape(0)
    sizes = dims.window_sizes(shape, build.shape(ct))
    # Clamping keeps the order of indices, but not that of index vectors.
    in_order = build.flag(op, "indices_are_sorted") and len(dims.index_map) == 1

    def update(total: Value) -> Value:
        indices = indexing.clamp(op.operand(1), shape, dims, sizes)
        return indexing.scatter(total, indices, ct, dims, sorted=in_order)

    return [InPlace(update), *[None] * (len(op.operands) - 1)]


linear("stablehlo.gather", gather, hands_on=True)
linear("stablehlo.dynamic_gather", gather, hands_on=True)


def _index_select(op: Op, operands: Sequence[Value]) -> Value:
    """Emit the gather of single places along `dim`, one per index, separately for each batch.

    The spec leaves this op out, so XLA's reading of it counts: indices of 64 bits become unsigned
    ones of 32, so that a negative one is clamped to the last place; others clamp it to the first.
    Source: xla/hlo/builder/lib/slicing.cc, `TorchIndexSelect`.
    """
    x, indices = operands
    shape, rank = build.shape(x), build.rank(indices)
    dim, batch = (build.number(op, name) for name in ("dim", "batch_dims"))
    if not 0 <= batch <= dim < len(shape) or batch > rank:
        raise unsupported(
            op,
            f"with dim = {dim} and batch_dims = {batch} on an operand of rank {len(shape)}",
            "use 0 <= batch_dims <= dim < rank",
        )
    if 0 in shape:
        return build.zeros(op.result_type)
    if build.info(indices.type).bits == 64 and shape[dim] < 2**32 - 1:
        indices = build.convert(indices, build.element_type("ui32"))
    batches = tuple(range(batch))
    window = (*range(batch, dim), *range(dim + rank - batch, len(shape) + rank - batch - 1))
    dims = Dimensions(window, (dim,), batches, batches, (dim,), rank)
    sizes = [1 if i < batch or i == dim else n for i, n in enumerate(shape)]
    return indexing.gather(x, indices, dims, sizes)


by_expansion("stablehlo.torch_index_select", _index_select, linear=only_in(0), family="indexing")


# --------------------------------------------------------------------------------- scatter


def combination(operation: Any) -> str:
    """Return how a scatter combines old and new: 'replace', 'keep', an op's name, or a phrase."""
    if len(operation.operands) != 3:
        return "several operands"
    block = operation.regions[0].blocks[0]
    old, new = block.arguments
    found = applied(block)
    if found is None:
        return "a body of its own"
    if name := body_name(operation.regions[0]):
        return name
    if found.op is None and found.operands in ([old], [new]):
        return "keep" if found.operands == [old] else "replace"
    return "a body of its own"


class _Scatter:
    """The attributes of a scatter with one operand, and the ops of its derivatives."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.dims = Dimensions.of_scatter(op.attributes["scatter_dimension_numbers"])
        self.unique = build.flag(op, "unique_indices")
        self.sorted = build.flag(op, "indices_are_sorted")
        self.kind = combination(op.operation)

    @property
    def indices(self) -> Value:
        return self.op.operand(1)

    def gather(self, v: Value) -> Value:
        """Gather the windows of `v` at clamped indices: do not use those outside."""
        sizes = self.dims.window_sizes(build.shape(v), self.op.shape(2))
        return indexing.gather(v, self.indices, self.dims, sizes, self.sorted)

    def gather_inside(self, v: Value) -> Value | None:
        """Gather the windows of `v`, with zeros for those that the scatter drops.

        Source: jax/_src/lax/slicing.py, `_scatter_addsub_transpose_rule`.
        """
        updates = self.op.shape(2)
        mask = indexing.inside(self.indices, self.op.shape(0), self.dims, updates)
        found = self.gather(v)
        return found if mask is None else select(mask, found, None)

    def scatter(self, operand: Value, updates: Value, body: Any = "stablehlo.add") -> Value:
        return indexing.scatter(
            operand,
            self.indices,
            updates,
            self.dims,
            body,
            unique=self.unique,
            sorted=self.sorted,
        )

    def again(self, operand: Value | None, updates: Value | None) -> Value:
        """Emit the same scatter on other operands, with zeros for those that are None."""
        operand = build.zeros(self.op.operands[0].type) if operand is None else operand
        updates = build.zeros(self.op.operands[2].type) if updates is None else updates
        return build.clone(self.op.operation, [operand, self.indices, updates]).result

    def winners(self) -> tuple[Value, Value]:
        """Return masks of the operand's elements that survive, and of the updates that win.

        Which of several updates of one element wins is up to the backend: updates are numbered,
        and the numbers scattered in the same way.

        Source: jax/_src/lax/slicing.py, `_scatter_jvp`.
        """
        dims, shape = self.dims, self.op.shape(2)
        batch = tuple(1 if d in dims.window else n for d, n in enumerate(shape))
        total = math.prod(batch)
        element = build.element_type("ui32")
        numbers = build.iota(build.tensor((total,), element), 0)
        numbers = build.reshape(add(numbers, 1), batch)
        numbers = build.broadcast_in_dim(numbers, shape, range(len(shape)))
        none = build.zeros(build.with_element(self.op.operands[0].type, element))
        scattered = self.scatter(none, numbers, indexing.replace)
        survives = compare("EQ", scattered, 0)
        return survives, compare("EQ", numbers, self.gather(scattered))


def _add_or_subtract(op: Op, tangents: Tangents) -> list[Value | None]:
    parts = _Scatter(op)
    return [parts.again(tangents[0], tangents[2])]


def _add_transpose(op: Op, cts: Tangents) -> list[Value | None]:
    (ct,) = cts
    return [ct, None, _Scatter(op).gather_inside(ct) if op.active[2] else None]


def _subtract_transpose(op: Op, cts: Tangents) -> list[Value | None]:
    operand, _, updates = _add_transpose(op, cts)
    return [operand, None, neg(updates)]


def _replace_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    parts = _Scatter(op)
    if parts.unique:
        return [parts.again(tangents[0], tangents[2])]
    survives, wins = parts.winners()
    operand = build.instantiate(select(survives, tangents[0], None), op.operands[0])
    updates = select(wins, tangents[2], None)
    return [operand if updates is None else parts.scatter(operand, updates)]


def _replace_transpose(op: Op, cts: Sequence[Any]) -> list[Value | None]:
    (ct,) = cts
    parts = _Scatter(op)
    if parts.unique:
        operand = None
        if op.active[0]:
            blank = build.zeros(build.with_shape(ct.type, op.shape(2)))
            operand = parts.scatter(ct, blank, indexing.replace)
        return [operand, None, parts.gather_inside(ct) if op.active[2] else None]
    survives, wins = parts.winners()
    operand = select(survives, ct, None) if op.active[0] else None
    return [operand, None, select(wins, parts.gather(ct), None) if op.active[2] else None]


def _multiply_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    """Emit d(x u) = dx u + x du; if u is perturbed, indices have to be unique.

    Source: jax/_src/lax/slicing.py, `_scatter_mul_jvp_rhs`.
    """
    parts = _Scatter(op)
    dx, _, du = tangents
    left = None if dx is None else parts.again(dx, op.operand(2))
    if du is None:
        return [left]
    _check_unique(parts)
    return [add(left, mul(op.x, parts.scatter(build.zeros(op.operands[0].type), du)))]


def _multiply_transpose(op: Op, cts: Tangents) -> list[Value | None]:
    """Transpose `_multiply_jvp`.

    Source: jax/_src/lax/slicing.py, `_scatter_mul_transpose_rule`.
    """
    (ct,) = cts
    parts = _Scatter(op)
    operand = parts.again(ct, op.operand(2)) if op.active[0] else None
    if not op.active[2]:
        return [operand, None, None]
    _check_unique(parts)
    return [operand, None, parts.gather_inside(mul(ct, op.x))]


def _check_unique(parts: _Scatter) -> None:
    if not parts.unique:
        raise unsupported(
            parts.op,
            "that multiplies, with respect to its updates: its indices may repeat",
            "say that they do not (unique_indices=True), or write it as a sum of logarithms",
        )


def _extremum_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    """Average the tangents of all elements and updates that attain the extremum.

    Source: jax/_src/lax/slicing.py, `_scatter_extremal_jvp`; there, indices outside give NaN.
    """
    parts = _Scatter(op)
    dx, _, du = tangents
    type, updates = op.operands[0].type, op.operand(2)
    element, number = build.info(type).element, build.counting(type)
    wins = compare("EQ", updates, parts.gather(op.result))
    none = build.zeros(build.with_element(type, number))
    winners = parts.scatter(none, build.convert(wins, number))
    # Where no update has won, the operand has kept its element.
    keeps = or_(compare("EQ", winners, 0.0), compare("EQ", op.x, op.result))
    share = build.convert(div(1.0, add(winners, build.convert(keeps, number))), element)
    old = build.instantiate(select(keeps, mul(dx, share), None), op.operands[0])
    if du is None:
        return [old]
    return [parts.scatter(old, select(wins, mul(du, parts.gather(share)), None))]


def _keep_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    return [tangents[0]]


def _keep_transpose(op: Op, cts: Tangents) -> list[Value | None]:
    return [cts[0], None, None]


def _apply(op: Op, operands: Sequence[Value]) -> list[Value]:
    """Gather each window, combine it with its update as the body does, and write it back."""
    parts, count = _Scatter(op), len(op.results)
    xs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    shape = build.shape(updates[0])
    sizes = parts.dims.window_sizes(build.shape(xs[0]), shape)
    old = [indexing.gather(x, indices, parts.dims, sizes, parts.sorted) for x in xs]
    body = op.operation.regions[0].blocks[0]
    new = lift(op.frame.diff, body, [*old, *updates], shape)
    flags = {"unique": parts.unique, "sorted": parts.sorted}
    return [
        indexing.scatter(x, indices, v, parts.dims, indexing.replace, **flags)
        for x, v in zip(xs, new, strict=True)
    ]


def _meets_each_once(op: Op) -> bool:
    """Return True if no element is combined with the result of another update."""
    old = op.operation.regions[0].blocks[0].arguments[: len(op.results)]
    return build.flag(op, "unique_indices") or not any(map(is_used, old))


def _rule(jvp: Any, vjp: Any, linear: Any, **more: Any) -> Rule:
    return Rule("stablehlo.scatter", jvp, vjp, linear, __name__, "own", keeps_type=True, **more)


_EXTREMUM = _rule(_extremum_jvp, transposed(_extremum_jvp), never, compares=True)

_APPLY = _rule(*expanded(_apply), by_its_parts)

_VARIANTS = {
    "stablehlo.add": _rule(_add_or_subtract, _add_transpose, jointly, hands_on=True),
    "stablehlo.subtract": _rule(_add_or_subtract, _subtract_transpose, jointly, hands_on=True),
    "stablehlo.multiply": _rule(_multiply_jvp, _multiply_transpose, only_in(0)),
    "stablehlo.maximum": _EXTREMUM,
    "stablehlo.minimum": _EXTREMUM,
    "replace": _rule(_replace_jvp, _replace_transpose, jointly, hands_on=True),
    "keep": _rule(_keep_jvp, _keep_transpose, jointly, hands_on=True),
}


def _variant(op: Op) -> Rule:
    check_scalars(op)
    kind = combination(op.operation)
    if kind in _VARIANTS:
        return _VARIANTS[kind]
    if not _meets_each_once(op):
        raise unsupported(
            op,
            f"with {kind}: its indices may repeat",
            "say that they do not (unique_indices=True), or use one operand and a body that is "
            "one of add, subtract, multiply, maximum, minimum, or returns the update",
        )
    return _APPLY


by_variant("stablehlo.scatter", _variant)


# --------------------------------------------------------------------------------- batches


@batch("stablehlo.gather", "stablehlo.dynamic_gather")
def _batch_gather(op: MappedOp) -> Value | None:
    """Gather the same windows of each item, or those at its own indices."""
    dims = Dimensions.of_gather(op.attributes["dimension_numbers"])
    result = build.shape_of(op.results[0])
    x, indices, *_ = op.batched
    if -1 in result or not (x or indices):
        return None
    if "slice_sizes" in op.attributes:
        sizes = build.integers(op.attributes["slice_sizes"])
    else:
        sizes = dims.window_sizes(op.shape(0), result)
    in_order = _still_sorted(op, indices)
    return indexing.gather_batch(op.values[0], op.values[1], dims, sizes, x, indices, in_order)


@batch("stablehlo.torch_index_select")
def _batch_index_select(op: MappedOp) -> list[Value]:
    """Make the batch axis one more of the batch dimensions that both operands have."""
    dim, batch = (build.number(op, name) for name in ("dim", "batch_dims"))
    return op.again(dim=build.i64(dim + 1), batch_dims=build.i64(batch + 1))


@batch("stablehlo.scatter")
def _batch_scatter(op: MappedOp) -> list[Value]:
    """Scatter each item into an operand of its own: different items never overlap."""
    count = len(op.results)
    indices = op.batched[count]
    operands = op.operands()
    operands[count] = op.values[count]
    dims = Dimensions.of_scatter(op.attributes["scatter_dimension_numbers"])
    return op.again(
        operands,
        scatter_dimension_numbers=dims.batched(True, indices).scatter_attribute(),
        indices_are_sorted=build.truth(_still_sorted(op, indices)),
    )


def _still_sorted(op: MappedOp, batched: bool) -> bool:
    """Return True if indices stay sorted: batched ones are only sorted within an item."""
    return build.flag(op, "indices_are_sorted") and not batched
