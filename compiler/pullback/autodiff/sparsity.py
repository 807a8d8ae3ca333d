"""Find which element of a result depends on which element of an argument: sparsity analysis.

It follows tangents through a function that forward mode made, in which all derivative rules are
applied: so a rule counts, and not the function that it is a rule of. What is not known is taken to
depend on more, never on less.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback._jax import ir, stablehlo
from pullback.ir import build
from pullback.ir.dataflow import ForwardAnalysis, uses
from pullback.ir.index_sets import Ids, IndexSets
from pullback.ir.indexing import Dimensions
from pullback.ir.regions import BRANCHES, MANUAL, blocks, operations, terminator
from pullback.ir.symbols import CALLS
from pullback.ir.traits import DATA, ELEMENTWISE
from pullback_runtime.ir._dtypes import element_dtype

MOST_STEPS = 200_000
"""Bound the ops that are visited while loops are followed iteration by iteration."""

MOST_PRODUCTS = 1 << 24
"""Bound the products of a contraction with a known factor whose zeros are looked at."""

MOST_WHOLE = 1 << 26
"""Bound whole numbers whose sums and products are exact in 64 bits."""


@dataclass(frozen=True, eq=False)
class Fact:
    """Hold what is known of a value.

    Attributes:
      ids: for each element the set of tangents that it depends on; None if on none.
      known: the value, if it is a constant; NaN stands for any number.
    """

    ids: Ids | None = None
    known: np.ndarray | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fact) and all(
            map(_are_equal, (self.ids, self.known), (other.ids, other.known))
        )

    __hash__ = None  # type: ignore[assignment]


def _are_equal(x: np.ndarray | None, y: np.ndarray | None) -> bool:
    return x is y or (x is not None and y is not None and np.array_equal(x, y, equal_nan=True))


NOTHING = Fact()
Facts = list[Fact]
Transfer = Callable[["Sparsity", Any, Facts], Facts]
_TRANSFERS: dict[str, Transfer] = {}
_INDICES = {"stablehlo.scatter": (1,)}


class Sparsity(ForwardAnalysis[Fact]):
    """Analyze the functions of a module forward, by sets of elements of its tangents.

    A loop whose condition is known, as that of a scan is, is followed iteration by iteration; the
    carries of any other are a fixpoint. A value that is not known stays so.
    """

    bottom = NOTHING

    def __init__(self, functions: Mapping[str, Any], size: int) -> None:
        super().__init__(functions)
        self.sets = IndexSets(size)
        self._steps = MOST_STEPS

    def join(self, x: Fact, y: Fact) -> Fact:
        known = x.known if _are_equal(x.known, y.known) else None
        if x.ids is None or y.ids is None:
            return Fact(y.ids if x.ids is None else x.ids, known)
        return Fact(self.sets.union(x.ids, y.ids), known)

    def ids(self, value: Any, fact: Fact) -> Ids:
        """Return the sets of all elements of a value."""
        return np.broadcast_to(0, build.shape(value)) if fact.ids is None else fact.ids

    def operation(self, operation: Any, facts: dict[Any, Fact]) -> Facts:
        name, given = operation.name, self.of(uses(operation), facts)
        self._steps -= 1
        is_known = all(fact.known is not None for fact in given)
        if not is_known and all(fact.ids is None for fact in given):
            return [NOTHING] * len(operation.results)
        operands = given[: len(operation.operands)]
        if name in CALLS and (body := self.body(operation)) is not None:
            return self.block(body, operands, {})  # not a summary, whose key would be arrays
        if name in BRANCHES and operands[0].known is not None:
            return self.block(_chosen(operation, int(operands[0].known)), [], facts)
        if name == MANUAL or (name in BRANCHES and operands[0].ids is not None):
            return self.of_all(operation, given)
        return super().operation(operation, facts)

    def loop(self, loop: Any, carries: Facts, facts: dict[Any, Fact]) -> Facts:
        cond, body = blocks(loop)
        while self._steps > 0:
            (goes_on,) = self.block(cond, carries, dict(facts))
            if goes_on.known is None:
                break
            if not goes_on.known:
                return carries
            carries = self.block(body, carries, dict(facts))
        return super().loop(loop, carries, facts)

    def transfer(self, operation: Any, given: Facts, facts: dict[Any, Fact]) -> Facts:
        name, every = operation.name, self.of(uses(operation), facts)
        if all(fact.ids is None for fact in every):
            if name not in _TRANSFERS:
                return [NOTHING] * len(operation.results)
            with np.errstate(all="ignore"):
                return _TRANSFERS[name](self, operation, given)
        data = range(len(given))[DATA.get(name, slice(None))]
        indices = _INDICES.get(name, [i for i in range(len(given)) if i not in data])
        is_data = all(fact.ids is None for fact in every[len(given) :])
        is_data = is_data and all(given[i].ids is None for i in indices)
        if name in _TRANSFERS and is_data:
            return _TRANSFERS[name](self, operation, given)
        if name in ELEMENTWISE and _has_equal_shapes(operation):
            return _elementwise(self, operation, given)
        return self.of_all(operation, every)

    def of_all(self, operation: Any, facts: Facts) -> Facts:
        """Let each element of the results depend on all elements of some values."""
        parts = [fact.ids.ravel() for fact in facts if fact.ids is not None]
        if not parts:
            return [NOTHING] * len(operation.results)
        union = self.sets.union_along(np.concatenate(parts), (0,))
        return [Fact(np.broadcast_to(union.reshape(()), build.shape(r))) for r in operation.results]


def _chosen(operation: Any, index: int) -> Any:
    """Return the block that an `if` or a `case` runs; the last one for an index out of range."""
    branches = blocks(operation)
    first = 1 - index if operation.name == "stablehlo.if" else index
    return branches[first if 0 <= first < len(branches) else -1]


def _has_equal_shapes(op: Any) -> bool:
    """Return True if each operand has the shape of the result, or is a scalar."""
    shape = build.shape(op.results[0])
    return all(build.shape(v) in (shape, ()) for v in op.operands)


def constant(array: np.ndarray) -> Fact:
    """Return the fact of a known array."""
    return Fact(None, array)


def _of(*names: str) -> Callable[[Transfer], Transfer]:
    def register(transfer: Transfer) -> Transfer:
        _TRANSFERS.update({f"stablehlo.{name}": transfer for name in names})
        return transfer

    return register


def _dtype(value: Any) -> np.dtype:
    return element_dtype(build.info(value.type).element, "a value")


# --------------------------------------------------------------------------- known values


@_of("constant")
def _constant(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    shape = build.shape(op.result)
    try:
        value = ir.DenseElementsAttr(op.attributes["value"])
        if value.is_splat and isinstance(found := value.get_splat_value(), ir.FloatAttr):
            array = np.asarray(found.value, _dtype(op.result))
        else:
            array = np.array(value)
        is_read = array.dtype == _dtype(op.result)
    except (TypeError, ValueError, RuntimeError):  # what the bindings cannot read
        is_read = False
    return [constant(np.broadcast_to(array, shape)) if is_read else NOTHING]


@_of("iota")
def _iota(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    shape, dim = build.shape(op.result), build.number(op, "iota_dimension")
    along = np.arange(shape[dim]).astype(_dtype(op.result))
    along = along.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return [constant(np.broadcast_to(along, shape))]


def _quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return x / y
    nonzero = np.where(y == 0, np.ones_like(y), y)
    towards_zero = np.sign(x) * np.sign(nonzero) * (abs(x) // abs(nonzero))
    return np.where(y == 0, ~np.zeros_like(x), towards_zero)


def _compare(op: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    direction = build.enumerator(op.attributes["comparison_direction"])
    functions = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal}
    found = {**functions, "GT": np.greater, "GE": np.greater_equal}[direction](x, y)
    return np.asarray(found)


_VALUES: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "ceil": np.ceil,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "convert": lambda x: x,
    "divide": _quotient,
    "floor": np.floor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negate": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "remainder": np.fmod,
    "select": np.where,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
    "xor": np.bitwise_xor,
}
_ROUNDED = {"add", "convert", "divide", "multiply", "sqrt", "subtract"}


def _exact(name: str, given: Sequence[np.ndarray], found: np.ndarray) -> np.ndarray:
    """Return floats with NaN in place of those that XLA may round otherwise than NumPy.

    It multiplies by reciprocals, fuses products with sums, and keeps more bits than asked for: a
    comparison or `floor` of such a number may decide otherwise. Zeros and whole numbers are exact.
    """
    is_exact = np.isinf(found)
    if name not in ("divide", "sqrt"):
        wide = [x.astype(complex if found.dtype.kind == "c" else float) for x in given]
        is_whole = [(x == np.rint(x)) & (abs(x) < MOST_WHOLE) for x in wide]
        is_exact |= functools.reduce(np.logical_and, is_whole) & (found == _VALUES[name](*wide))
    exact = np.where(is_exact, found, np.nan)
    return np.where(_is_zero(name, given[0], given[-1]), 0, exact).astype(found.dtype)


def _is_zero(name: str, x: np.ndarray, y: np.ndarray) -> Any:
    """Return where the result of an op is zero, whatever a number is that is not known."""
    if name == "multiply":
        return ((x == 0) & ~np.isinf(y)) | ((y == 0) & ~np.isinf(x))
    if name == "divide":
        return (x == 0) & (y != 0)
    return name == "sqrt" and x == 0


@_of(*_VALUES, "compare")
def _elementwise(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    values, (result,) = list(op.operands), op.results
    name = op.name.partition(".")[2]
    if all(fact.ids is None for fact in facts):
        given = list(map(_known, facts))
        is_float = build.info(result.type).kind in "fc"
        if not is_float and any(np.isnan(x).any() for x in given):
            return [NOTHING]
        found = _compare(op, *given) if name == "compare" else _VALUES[name](*given)
        array = np.asarray(found).astype(_dtype(result), copy=False)
        if is_float and name in _ROUNDED:
            array = _exact(name, given, array)
        return [constant(array)]
    if name == "select" and facts[0].known is not None and facts[0].ids is None:
        x, y = (analysis.ids(v, f) for v, f in zip(values[1:], facts[1:], strict=True))
        return [Fact(np.where(facts[0].known, x, y))]
    ids = np.zeros(build.shape(result), np.int64)
    for fact in facts:
        if fact.ids is not None:
            ids = analysis.sets.union(ids, fact.ids)
    if name in ("multiply", "and"):
        for fact in facts:
            if fact.known is not None:
                ids = np.where(fact.known == 0, 0, ids)
    return [Fact(ids)]


# ---------------------------------------------------------------- ops that move elements


def _moves(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what an op does to arrays, of numbers or of sets."""

    def register(move: Callable[..., Any]) -> Callable[..., Any]:
        def transfer(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
            ids = known = None
            if any(fact.ids is not None for fact in facts):
                pairs = zip(op.operands, facts, strict=True)
                ids = move(op, *(analysis.ids(*pair) for pair in pairs))
            if all(fact.known is not None for fact in facts):
                known = move(op, *(fact.known for fact in facts))
            return [Fact(ids, known)]

        _TRANSFERS[f"stablehlo.{name}"] = transfer
        return move

    return register


@_moves("reshape")
def _reshape(op: Any, x: np.ndarray) -> np.ndarray:
    return x.reshape(build.shape(op.result))


@_moves("transpose")
def _transpose(op: Any, x: np.ndarray) -> np.ndarray:
    return x.transpose(build.integers(op.attributes["permutation"]))


@_moves("broadcast_in_dim")
def _broadcast_in_dim(op: Any, x: np.ndarray) -> np.ndarray:
    dims, shape = build.integers(op.attributes["broadcast_dimensions"]), build.shape(op.result)
    order = sorted(range(x.ndim), key=dims.__getitem__)
    aligned = [x.shape[dims.index(d)] if d in dims else 1 for d in range(len(shape))]
    return np.broadcast_to(x.transpose(order).reshape(aligned), shape)


@_moves("slice")
def _slice(op: Any, x: np.ndarray) -> np.ndarray:
    names = "start_indices", "limit_indices", "strides"
    limits = (build.integers(op.attributes[name]) for name in names)
    return x[tuple(slice(*each) for each in zip(*limits, strict=True))]


@_moves("reverse")
def _reverse(op: Any, x: np.ndarray) -> np.ndarray:
    return np.flip(x, build.integers(op.attributes["dimensions"]))


@_moves("concatenate")
def _concatenate(op: Any, *xs: np.ndarray) -> np.ndarray:
    return np.concatenate(xs, build.number(op, "dimension"))


@_moves("pad")
def _pad(op: Any, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    names = "edge_padding_low", "edge_padding_high", "interior_padding"
    low, high, interior = (build.integers(op.attributes[name]) for name in names)
    return _padded(x, value, low, high, [n + 1 for n in interior])


def _padded(
    x: np.ndarray, value: Any, low: Sequence[int], high: Sequence[int], dilation: Sequence[int]
) -> np.ndarray:
    spread = [max(0, (n - 1) * d + 1) for n, d in zip(x.shape, dilation, strict=True)]
    whole = np.full([n + max(a, 0) + max(b, 0) for n, a, b in zip(spread, low, high)], value)
    first = [max(a, 0) for a in low]
    spots = zip(first, spread, dilation, strict=True)
    whole[tuple(slice(a, a + n, d) for a, n, d in spots)] = x
    crops = zip(whole.shape, low, high, strict=True)
    return whole[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in crops)]


@_of("optimization_barrier")
def _barrier(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    return facts


# --------------------------------------------------------------------------- indexing


def _starts(facts: Facts, bounds: Sequence[int]) -> list[int | None]:
    """Return the start indices, clamped; None for those that are not known."""
    pairs = zip(facts, bounds, strict=True)
    return [
        0 if bound == 0 else None if f.known is None else min(max(int(f.known), 0), bound)
        for f, bound in pairs
    ]


@_of("dynamic_slice")
def _dynamic_slice(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    shape, sizes = build.shape(op.operands[0]), build.shape(op.result)
    starts = _starts(facts[1:], [n - m for n, m in zip(shape, sizes, strict=True)])
    spots = tuple(slice(a or 0, (a or 0) + n) for a, n in zip(starts, sizes, strict=True))
    if facts[0].ids is None:
        return [NOTHING if None in starts else constant(_known(facts[0])[spots])]
    unknown = [d for d, start in enumerate(starts) if start is None]
    return [Fact(_anywhere(analysis, facts[0].ids, unknown)[spots])]


def _anywhere(analysis: Sparsity, ids: Ids, dims: Sequence[int]) -> Ids:
    """Let each element stand for all along some dimensions, on which its place is not known."""
    if not dims:
        return ids
    return np.broadcast_to(analysis.sets.union_along(ids, dims), ids.shape)


def _known(fact: Fact) -> np.ndarray:
    assert fact.known is not None
    return fact.known


@_of("dynamic_update_slice")
def _dynamic_update_slice(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    shape, sizes = build.shape(op.operands[0]), build.shape(op.operands[1])
    starts = _starts(facts[2:], [n - m for n, m in zip(shape, sizes, strict=True)])
    spots = tuple(slice(a or 0, (a or 0) + n) for a, n in zip(starts, sizes, strict=True))
    if all(fact.ids is None for fact in facts[:2]):
        known = np.array(_known(facts[0]))
        known[spots] = _known(facts[1])
        return [constant(known)]
    whole, update = (analysis.ids(v, f) for v, f in zip(op.operands, facts[:2], strict=False))
    found = np.array(whole)
    if None not in starts:
        found[spots] = update
        return [Fact(found)]
    unknown = [d for d, start in enumerate(starts) if start is None]
    spots = tuple(slice(None) if d in unknown else s for d, s in enumerate(spots))
    found[spots] = analysis.sets.union(found[spots], analysis.sets.union_along(update, unknown))
    return [Fact(found)]


def _positions(
    dims: Dimensions,
    indices: np.ndarray,
    operand: Sequence[int],
    sizes: Sequence[int],
    shape: Sequence[int],
    clamps: bool,
) -> np.ndarray:
    """Return which element of the operand each gathered element is; -1 for what is dropped."""
    rank, batch = len(shape), dims.batch(shape)
    if dims.index_vector == indices.ndim:
        indices = indices[..., None]
    starts = np.moveaxis(indices, dims.index_vector, -1).astype(np.int64)
    along = [
        np.arange(n).reshape([-1 if e == d else 1 for e in range(rank)])
        for d, n in enumerate(shape)
    ]
    small = {*dims.collapsed, *dims.operand_batching}
    window = iter(dims.window)
    inside = np.ones([1] * rank, bool)
    found = np.zeros([1] * rank, np.int64)
    for d, n in enumerate(operand):
        place = np.zeros([1] * rank, np.int64) if d in small else along[next(window)]
        if d in dims.operand_batching:
            of_indices = dims.indices_batching[dims.operand_batching.index(d)]
            place = along[batch[of_indices - (of_indices > dims.index_vector)]]
        if d in dims.index_map:
            start = starts[..., dims.index_map.index(d)]
            start = start.reshape([shape[e] if e in batch else 1 for e in range(rank)])
            if clamps:
                start = np.clip(start, 0, n - sizes[d])
            inside = inside & (start >= 0) & (start <= n - sizes[d])
            place = place + start
        found = found * n + place
    return np.broadcast_to(np.where(inside, found, -1), shape)


@_of("gather")
def _gather(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    dims = Dimensions.of_gather(op.attributes["dimension_numbers"])
    operand, indices = op.operands
    sizes, data = build.integers(op.attributes["slice_sizes"]), facts[0]
    given = facts[1].known
    is_known = given is not None
    if given is None:
        given = np.zeros(build.shape(indices), np.int64)
    at = _positions(dims, given, build.shape(operand), sizes, build.shape(op.result), True)
    if data.ids is None:
        return [constant(_known(data).ravel()[at])]
    ids = data.ids if is_known else _anywhere(analysis, data.ids, dims.index_map)
    return [Fact(ids.ravel()[at])]


@_of("scatter")
def _scatter(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    if len(op.operands) != 3:
        return analysis.of_all(op, facts)
    dims = Dimensions.of_scatter(op.attributes["scatter_dimension_numbers"])
    operand, indices, updates = op.operands
    shape, windows = build.shape(operand), build.shape(updates)
    given = facts[1].known
    is_known = given is not None
    if given is None:
        given = np.zeros(build.shape(indices), np.int64)
    sizes = dims.window_sizes(shape, windows)
    at = _positions(dims, given, shape, sizes, windows, not is_known).ravel()
    (body,) = blocks(op)
    replaces = is_known and terminator(body).operands[0] == body.arguments[1]
    if all(fact.ids is None for fact in facts):
        if not replaces:
            return [NOTHING]
        known = np.array(_known(facts[0])).ravel()
        known[at[at >= 0]] = np.ravel(_known(facts[2]))[at >= 0]
        return [constant(known.reshape(shape))]
    base = np.array(analysis.ids(operand, facts[0])).ravel()
    if replaces:
        base[at[at >= 0]] = 0
    used = analysis.ids(updates, facts[2]).ravel()[at >= 0]
    added = analysis.sets.grouped(at[at >= 0], used, base.size).reshape(shape)
    if not is_known:
        added = _anywhere(analysis, added, dims.index_map)
    return [Fact(analysis.sets.union(base.reshape(shape), added))]


# ------------------------------------------------------------------ reductions and products


_REDUCTIONS: dict[str, Any] = {
    "stablehlo.add": np.add,
    "stablehlo.and": np.bitwise_and,
    "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum,
    "stablehlo.or": np.bitwise_or,
}


@_of("reduce")
def _reduce(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    dims, count = build.integers(op.attributes["dimensions"]), len(op.results)
    if all(fact.ids is None for fact in facts):
        body = [each.name for each in operations(blocks(op)[0])]
        if count > 1 or len(body) != 2 or body[0] not in _REDUCTIONS:
            return [NOTHING] * count
        function = _REDUCTIONS[body[0]]
        given = _known(facts[0])
        found = np.asarray(function(_known(facts[1]), function.reduce(given, axis=dims)))
        if function is np.add and build.info(op.result.type).kind in "fc":  # in another order
            found = np.where(np.any(given, axis=dims), np.nan, found)
        return [constant(found.astype(_dtype(op.result), copy=False))]
    ids = np.zeros(build.shape(op.results[0]), np.int64)
    for i, fact in enumerate(facts):
        if fact.ids is not None:
            is_initial = i >= count
            found = fact.ids if is_initial else analysis.sets.union_along(fact.ids, dims)
            ids = analysis.sets.union(ids, found.reshape(() if is_initial else ids.shape))
    return [Fact(ids)] * count


def _windows(
    analysis: Sparsity,
    ids: Ids,
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> Ids:
    """Return the union over each window of the last dimensions, on ids that are padded."""
    rank, first = len(window), ids.ndim - len(window)
    spread = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    if any(n < m for n, m in zip(ids.shape[first:], spread, strict=True)):
        sizes = [max(0, n - m + 1) for n, m in zip(ids.shape[first:], spread, strict=True)]
        return np.zeros((*ids.shape[:first], *sizes), np.int64)
    axes = tuple(range(first, ids.ndim))
    views = np.lib.stride_tricks.sliding_window_view(ids, spread, axes)
    steps = (*[1] * first, *strides, *dilation)
    views = views[tuple(slice(None, None, step) for step in steps)]
    inner = range(views.ndim - rank, views.ndim)
    return analysis.sets.union_along(views, inner).reshape(views.shape[: ids.ndim])


@_of("reduce_window")
def _reduce_window(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    if all(fact.ids is None for fact in facts):
        return [NOTHING] * len(op.results)
    rank, attributes = build.rank(op.operands[0]), op.attributes
    names = "window_dimensions", "window_strides", "window_dilations", "base_dilations"
    window, strides, dilation, base = (
        build.integers_or_ones(attributes, name, rank) for name in names
    )
    low, high = zip(*build.paddings(attributes, rank), strict=True)
    ids = np.zeros(build.shape(op.results[0]), np.int64)
    for value, fact in zip(op.operands, facts, strict=True):
        if fact.ids is not None and build.rank(value) == 0:
            ids = analysis.sets.union(ids, fact.ids)
        elif fact.ids is not None:
            padded = _padded(fact.ids, 0, low, high, base)
            found = _windows(analysis, padded, window, strides, dilation)
            ids = analysis.sets.union(ids, found)
    return [Fact(ids)] * len(op.results)


@_of("convolution")
def _convolution(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    attributes, kernel = op.attributes, op.operands[1]
    if all(fact.ids is None for fact in facts):
        return [NOTHING]
    if build.number(op, "batch_group_count") > 1:
        return analysis.of_all(op, facts)
    numbers = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
    spatial = list(numbers.kernel_spatial_dimensions)
    count, groups = len(spatial), build.number(op, "feature_group_count")
    window = [build.shape(kernel)[d] for d in spatial]
    outs = build.shape(kernel)[numbers.kernel_output_feature_dimension]
    shape = build.shape(op.result)
    order = [numbers.output_batch_dimension, numbers.output_feature_dimension]
    order += list(numbers.output_spatial_dimensions)
    ids = np.zeros([shape[d] for d in order], np.int64)  # batch, features, spatial
    if facts[0].ids is not None:
        names = "window_strides", "rhs_dilation", "lhs_dilation"
        strides, dilation, base = (
            build.integers_or_ones(attributes, name, count) for name in names
        )
        low, high = zip(*build.paddings(attributes, count), strict=True) if count else ((), ())
        dims = [numbers.input_batch_dimension, numbers.input_feature_dimension]
        found = facts[0].ids.transpose([*dims, *numbers.input_spatial_dimensions])
        split = found.reshape(len(found), groups, -1, *found.shape[2:])
        found = analysis.sets.union_along(split, (2,))[:, :, 0]
        edges = (0, 0, *low), (0, 0, *high), (1, 1, *base)
        found = _windows(analysis, _padded(found, 0, *edges), window, strides, dilation)
        ids = analysis.sets.union(ids, np.repeat(found, outs // groups, axis=1))
    if facts[1].ids is not None:
        out = numbers.kernel_output_feature_dimension
        others = [d for d in range(build.rank(kernel)) if d != out]
        found = analysis.sets.union_along(facts[1].ids, others)
        ids = analysis.sets.union(ids, found.reshape(-1, *[1] * count))
    return [Fact(ids.transpose(np.argsort(order)))]


@_of("dot_general")
def _dot_general(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    if all(fact.ids is None for fact in facts):
        return [NOTHING]
    dims = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = dims.lhs_batching_dimensions, dims.rhs_batching_dimensions
    contract = dims.lhs_contracting_dimensions, dims.rhs_contracting_dimensions
    given = [analysis.ids(*pair) for pair in zip(op.operands, facts, strict=True)]
    x, y = map(_as_matrices, given, batch, contract)
    ids = np.zeros((len(x), x.shape[1], y.shape[1]), np.int64)
    for i, each in enumerate((x, y)):
        if facts[i].ids is not None:
            other = facts[1 - i].known
            factor = None if other is None else _as_matrices(other, batch[1 - i], contract[1 - i])
            found = _product(analysis, each, factor)
            ids = analysis.sets.union(ids, found if i == 0 else found.swapaxes(1, 2))
    return [Fact(ids.reshape(build.shape(op.result)))]


def _as_matrices(x: np.ndarray, batch: Sequence[int], contract: Sequence[int]) -> np.ndarray:
    """Return an operand of a product as an array of (batch, free, contracted)."""
    free = [d for d in range(x.ndim) if d not in (*batch, *contract)]
    sizes = (math.prod(x.shape[d] for d in dims) for dims in (batch, free, contract))
    return x.transpose([*batch, *free, *contract]).reshape(*sizes)


def _product(analysis: Sparsity, x: Ids, y: np.ndarray | None) -> Ids:
    """Return the sets of a product, of shape (batch, free, free of the other factor, or 1)."""
    if y is not None and y.size * x.shape[1] <= MOST_PRODUCTS and not y.all():
        batch, column, inner = np.nonzero(y)
        rows = np.arange(x.shape[1])[:, None]
        groups = (batch * x.shape[1] + rows) * y.shape[1] + column
        ids = x[batch, rows, inner]
        shape = (*x.shape[:2], y.shape[1])
        found = analysis.sets.grouped(groups.ravel(), ids.ravel(), math.prod(shape))
        return found.reshape(shape)
    return analysis.sets.union_along(x, (2,))


@_of("cholesky", "custom_call", "fft", "triangular_solve")
def _of_items(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    """Depend on all elements of the operands that belong to the same item of a batch."""
    if all(fact.ids is None for fact in facts):
        return [NOTHING] * len(op.results)
    batch = _batch_dims(op)
    lead = build.shape(op.results[0])[:batch]
    ids = np.zeros(lead, np.int64)
    for fact in facts:
        if fact.ids is not None:
            inner = range(batch, fact.ids.ndim)
            ids = analysis.sets.union(ids, analysis.sets.union_along(fact.ids, inner).reshape(lead))
    shapes = [build.shape(r) for r in op.results]
    spread = [ids.reshape(*lead, *[1] * (len(shape) - batch)) for shape in shapes]
    return [Fact(np.broadcast_to(*each)) for each in zip(spread, shapes, strict=True)]


def _batch_dims(op: Any) -> int:
    """Return how many leading dimensions of operands and results number the items of a batch."""
    if op.name == "stablehlo.fft":
        return build.rank(op.result) - len(build.integers(op.attributes["fft_length"]))
    if op.name != "stablehlo.custom_call":
        return build.rank(op.result) - 2
    name = "mhlo.frontend_attributes"
    said = ir.DictAttr(op.attributes[name]) if name in op.attributes else {}
    return int(said["num_batch_dims"].value) if "num_batch_dims" in said else 0


@_of("sort")
def _sort(analysis: Sparsity, op: Any, facts: Facts) -> Facts:
    """Depend on all elements of all operands along the sorted dimension."""
    if all(fact.ids is None for fact in facts):
        return [NOTHING] * len(op.results)
    dim = build.number(op, "dimension")
    shape = build.shape(op.results[0])
    found = np.zeros([1 if d == dim else n for d, n in enumerate(shape)], np.int64)
    for fact in facts:
        if fact.ids is not None:
            found = analysis.sets.union(found, analysis.sets.union_along(fact.ids, (dim,)))
    return [Fact(np.broadcast_to(found, shape))] * len(op.results)
