"""Differentiate `reduce_window` with any associative body, and `select_and_scatter`.

A sum is linear. A maximum or minimum picks one element of each window: its tangent is the tangent
of that element. Every other body is written out on whole arrays, in about log2(window) steps, and
differentiated from there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.autodiff.batch_rules import MappedOp, batch
from pullback.autodiff.registry import (
    Op,
    Rule,
    Tangents,
    by_its_parts,
    by_variant,
    jointly,
    never,
    on_tangents,
    only_in,
    unsupported,
)
from pullback.autodiff.zeros import is_zero
from pullback.ir import build, indexing
from pullback.ir.build import Value, add, and_, compare, or_, select
from pullback.ir.indexing import Dimensions
from pullback.rules.associative import check_associative
from pullback.rules.body_patterns import applied, body_name, check_scalars
from pullback.rules.derived import expanded
from pullback.rules.reduction import is_all
from pullback.rules.scalar_bodies import lift


@dataclass(frozen=True)
class Window:
    """The positions of windows on an operand of rank n; every tuple has n entries."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    base_dilation: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @classmethod
    def of(cls, op: Any) -> Window:
        """Return the windows of an op, or of a record of one."""
        return cls.read(op.attributes, build.rank(op.operands[0]))

    @classmethod
    def of_batch(cls, op: MappedOp) -> Window:
        """Return the windows of a batched op, each on one item."""
        one = cls.read(op.attributes, len(op.shape(0)))
        ones = (one.dims, one.strides, one.base_dilation, one.dilation)
        return cls(*((1, *each) for each in ones), *((0, *each) for each in (one.low, one.high)))

    @classmethod
    def read(cls, attributes: Any, rank: int) -> Window:
        """Return the windows of an op with these attributes, on operands of this rank."""

        padding = build.paddings(attributes, rank)
        integers = functools.partial(build.integers_or_ones, attributes, count=rank)
        return cls(
            integers("window_dimensions"),
            integers("window_strides"),
            integers("base_dilations"),
            integers("window_dilations"),
            tuple(low for low, _ in padding),
            tuple(high for _, high in padding),
        )

    def attributes(self) -> dict[str, Any]:
        return {
            "window_dimensions": build.i64s(self.dims),
            "window_strides": build.i64s(self.strides),
            "base_dilations": build.i64s(self.base_dilation),
            "window_dilations": build.i64s(self.dilation),
            "padding": build.i64_rows(list(zip(self.low, self.high, strict=True))),
        }

    def attributes_undilated(self) -> dict[str, Any]:
        """Return the attributes of an op that has none for dilations."""
        found = self.attributes()
        del found["base_dilations"], found["window_dilations"]
        return found

    def spans(self) -> list[int]:
        """Return how far a window reaches along each dimension."""
        return [(w - 1) * d + 1 for w, d in zip(self.dims, self.dilation, strict=True)]

    def has_gaps(self) -> bool:
        """Return True if there is padding or base dilation."""
        return any(p > 0 for p in (*self.low, *self.high)) or any(d > 1 for d in self.base_dilation)

    def pad(self, x: Value, value: Any) -> Value:
        """Put padding and base dilation into the operand."""
        return build.pad(x, value, self.low, self.high, [d - 1 for d in self.base_dilation])

    def unpad(self, x: Value, shape: Sequence[int]) -> Value:
        """Invert `pad` for an operand of this shape; padding is dropped."""
        x = build.pad(x, 0, [-p for p in self.low], [-p for p in self.high])
        return build.slice_(x, [0] * len(shape), build.shape(x), self.base_dilation)

    def alone(self) -> Window:
        """Return the same windows on an operand that is padded already."""
        ones, zeros = (1,) * len(self.dims), (0,) * len(self.dims)
        return replace(self, base_dilation=ones, low=zeros, high=zeros)


# ------------------------------------------------------------------------------------- sums


def _sum_transpose(op: Op, cts: Sequence[Any]) -> list[Value | None]:
    """Sum the cotangent over windows, with strides and base dilation exchanged.

    Source: jax/_src/lax/windowed_reductions.py, `_reduce_window_sum_transpose_rule`.
    """
    (ct,) = cts
    window, shape = Window.of(op), op.shape(0)
    if 0 in shape or 0 in build.shape(ct):
        return [build.zeros(op.operands[0].type), None]
    low = [span - p - 1 for span, p in zip(window.spans(), window.low, strict=True)]
    dilated = [(n - 1) * d + 1 for n, d in zip(shape, window.base_dilation, strict=True)]
    spread = [(n - 1) * s + 1 for n, s in zip(build.shape(ct), window.strides, strict=True)]
    high = [
        n + span - 1 - m - p
        for n, span, m, p in zip(dilated, window.spans(), spread, low, strict=True)
    ]
    back = replace(window.alone(), strides=window.base_dilation)
    if set(window.strides) <= {1} and min(0, *low, *high) == 0:
        back = replace(back, low=tuple(low), high=tuple(high))  # XLA knows a cumulative sum by this
    else:
        ct = build.pad(ct, 0, low, high, [s - 1 for s in window.strides])
    type = build.with_element(op.operands[0].type, build.info(ct.type).element)
    return [_reduce_window(ct, back, type), None]


def _reduce_window(x: Value, window: Window, type: Any) -> Value:
    """Emit the sum over windows of `x`."""
    element = build.tensor((), build.info(x.type).element)
    operands = [x, build.zeros(element)]
    op = build.emit("stablehlo.reduce_window", [type], operands, window.attributes(), regions=1)
    build.fill_binary(op.regions[0], "stablehlo.add", element)
    return op.result


# --------------------------------------------------------------------------------- extrema

_LARGER = {"stablehlo.maximum": "GT", "stablehlo.minimum": "LT"}
_WORST = {"GT": -math.inf, "LT": math.inf}


def _chosen(
    x: Value, window: Window, shape: Sequence[int], larger: str, of_equals: str = "LT"
) -> Value:
    """Return the index into the flat `x` of the extremum of each window; of equals, the first.

    The size of `x` stands for the padding. With 'GT' for `of_equals`, the last of equals counts,
    and -1 stands for the padding: an infinite element is no better than that, and comes first.
    """
    size = math.prod(build.shape(x))
    outside = size if of_equals == "LT" else -1
    integer = build.scalar("i32" if size < 2**31 else "i64")
    flat = build.tensor((size,), build.info(integer).element)
    places: Any = build.reshape(build.iota(flat, 0), build.shape(x))
    element = build.tensor((), build.info(x.type).element)
    inits = [build.full(element, _WORST[larger]), build.full(integer, outside)]
    types = [build.with_shape(v.type, tuple(shape)) for v in (x, places)]
    op = build.emit(
        "stablehlo.reduce_window", types, [x, places, *inits], window.attributes(), regions=1
    )

    def better(a: Value, i: Value, b: Value, j: Value) -> list[Value]:
        first = and_(compare("EQ", a, b), compare(of_equals, i, j))
        left = or_(compare(larger, a, b), first)
        return [select(left, a, b), select(left, i, j)]

    indexing.fill(op.regions[0], [element, integer] * 2, better)
    return op.results[1]


_SINGLE = Dimensions((), (0,), (), (), (0,), 0)


def _flat_dimensions(places: Value) -> Dimensions:
    return _SINGLE._replace(index_vector=build.rank(places))


def _read(t: Value, places: Value, of_equals: str = "LT") -> Value:
    """Return the elements of `t` at flat indices; zero for the padding."""
    size = math.prod(build.shape(t))
    flat = build.reshape(t, (size,))
    found = indexing.gather(flat, places, _flat_dimensions(places), (1,))
    return select(_inside(places, size, of_equals), found, None)


def _inside(places: Value, size: int, of_equals: str) -> Value:
    """Return a mask of the indices from `_chosen` that are not the padding."""
    return compare("LT", places, size) if of_equals == "LT" else compare("GE", places, 0)


def _add_at(ct: Value, places: Value, type: Any) -> Value:
    """Add `ct` at flat indices into zeros of the type; drop what belongs to the padding."""
    shape = build.info(type).shape
    flat = build.zeros(build.with_shape(type, (math.prod(shape),)))
    found = indexing.scatter(flat, places, ct, _flat_dimensions(places))
    return build.reshape(found, shape)


def _extremum_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    """Return the tangent of the element that each window picks.

    Source: jax/_src/lax/windowed_reductions.py, `_reduce_window_chooser_jvp_rule`.
    """
    shape = build.info(op.result_type).shape
    if 0 in shape or 0 in op.shape(0):
        return [None]
    larger = _LARGER[body_name(op.operation.regions[0])]
    return [_read(tangents[0], _chosen(op.x, Window.of(op), shape, larger))]


def _extremum_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    """Add the cotangent at the element that each window picks.

    Source: jax/_src/lax/windowed_reductions.py, `_select_and_gather_add_transpose`.
    """
    (ct,) = cts
    window = Window.of(op)
    if 0 in op.shape(0) or 0 in build.shape(ct):
        return [None, None]
    larger = _LARGER[body_name(op.operation.regions[0])]
    if any(d != 1 for d in window.dilation):
        places = _chosen(op.x, window, build.shape(ct), larger)
        return [_add_at(ct, places, op.operands[0].type), None]
    # XLA's CPU and GPU backends want the padding done beforehand.
    padded = window.pad(op.x, _WORST[larger])
    found = _select_and_scatter(padded, ct, window.alone(), larger)
    return [window.unpad(found, op.shape(0)), None]


def _select_and_scatter(x: Value, source: Value, window: Window, larger: str) -> Value:
    element = build.tensor((), build.info(x.type).element)
    attributes = window.attributes_undilated()
    operands = [x, source, build.zeros(element)]
    op = build.emit("stablehlo.select_and_scatter", [x.type], operands, attributes, regions=2)
    or_equal = larger[0] + "E"
    indexing.fill(op.regions[0], [element] * 2, lambda a, b: [compare(or_equal, a, b)])
    build.fill_binary(op.regions[1], "stablehlo.add", element)
    return op.result


# ------------------------------------------------------------------------------- other bodies


Combine = Callable[[Sequence[Value], Sequence[Value]], list[Value]]


def _fold_windows(op: Op, operands: Sequence[Value]) -> list[Value]:
    """Expand the op on whole arrays: one dimension after the other, doubling window sizes.

    Padding is empty, as for XLA. By the StableHLO specification it has the initial value, which is
    the same if that is neutral.
    """
    window = Window.of(op)
    half = len(operands) // 2
    xs, inits = operands[:half], operands[half:]
    shape = build.info(op.result_type).shape
    if 0 in shape:
        return [build.zeros(r.type) for r in op.results]
    check_associative(op)
    body = op.operation.regions[0].blocks[0]

    def of_all(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        return lift(op.frame.diff, body, [*a, *b], build.shape(a[0]))

    combine: Combine = of_all
    xs = [window.pad(x, init) for x, init in zip(xs, inits, strict=True)]
    if window.has_gaps() and not _is_neutral(op):
        combine = _of_those_there(of_all)
        there = build.full(build.tensor(build.shape(operands[0]), build.boolean()), True)
        xs, inits = [*xs, window.pad(there, False)], [*inits, build.full(build.scalar("i1"), True)]
    for axis in reversed(range(len(shape))):  # row by row: the body need not commute
        xs = _fold_axis(xs, axis, window.dims[axis], window.dilation[axis], combine)
    starts = [0] * len(shape)
    xs = [build.slice_(x, starts, build.shape(x), window.strides) for x in xs]
    return combine([build.broadcast_in_dim(init, shape, ()) for init in inits], xs)[:half]


def _is_neutral(op: Op) -> bool:
    """Return True if another initial value is seen to change nothing."""
    name = body_name(op.operation.regions[0])
    return name in _LARGER or (name == "stablehlo.multiply" and is_all(op.operands[1], 1))


def _of_those_there(combine: Combine) -> Combine:
    """Return a `combine` for arrays followed by a mask of existing elements."""

    def combine_those(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        *xs, here = a
        *ys, there = b
        both = and_(here, there)
        triples = zip(combine(xs, ys), xs, ys, strict=True)
        return [*(select(both, f, select(here, x, y)) for f, x, y in triples), or_(here, there)]

    return combine_those


def _fold_axis(xs: list[Value], axis: int, count: int, step: int, combine: Combine) -> list[Value]:
    """Combine `count` neighbours, `step` apart, along an axis."""
    folded: Any = None
    width, power, reach = 0, xs, 1
    while True:
        if count & reach:
            folded = power if folded is None else _join(folded, power, axis, width * step, combine)
            width += reach
        if width == count:
            return folded
        power = _join(power, power, axis, reach * step, combine)
        reach *= 2


def _join(
    left: list[Value], right: list[Value], axis: int, offset: int, combine: Combine
) -> list[Value]:
    """Combine left[i] with right[i + offset], where both exist."""
    size = min(build.shape(left[0])[axis], build.shape(right[0])[axis] - offset)
    first = [build.part(x, axis, 0, size) for x in left]
    return combine(first, [build.part(x, axis, offset, offset + size) for x in right])


# ------------------------------------------------------------------------------ reduce_window


def _rule(name: str, jvp: Any, vjp: Any, linear: Any, **flags: Any) -> Rule:
    return Rule(name, jvp, vjp, linear, __name__, "own", **flags)


_SUM = _rule("stablehlo.reduce_window", on_tangents, _sum_transpose, jointly, hands_on=True)
_EXTREMUM = _rule("stablehlo.reduce_window", _extremum_jvp, _extremum_vjp, never)
_FOLD = _rule("stablehlo.reduce_window", *expanded(_fold_windows), by_its_parts)


def _reduce_window_variant(op: Op) -> Rule:
    """Return the rule for the body; the general one if the initial value is active or may win.

    So it is for windows on a scalar: XLA ends the process at a select_and_scatter of those.
    """
    check_scalars(op, op.operands[-1])
    if any(op.active[len(op.results) :]) or not op.shape(0):
        return _FOLD
    name = body_name(op.operation.regions[0])
    if name in _LARGER:
        worst = _WORST[_LARGER[name]]
        return _EXTREMUM if is_all(op.operands[1], worst) else _FOLD
    return _SUM if name == "stablehlo.add" else _FOLD


by_variant("stablehlo.reduce_window", _reduce_window_variant)


# -------------------------------------------------------------------------- select_and_scatter


def _scatter_selected_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    """Emit the op on the source's tangent: it is linear in that, and the selection is constant.

    Source: jax/_src/lax/windowed_reductions.py, `_select_and_scatter_add_jvp`.
    """
    _, source, init = tangents
    found = build.broadcast_in_dim(init, op.shape(0), ())
    if source is not None:
        zero = build.zeros(op.operands[2].type)
        found = add(build.clone(op.operation, [op.x, source, zero]).result, found)
    return [found]


def _scatter_selected_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    """Read the cotangent of the source where the op scattered it, and total that of the init.

    Source: jax/_src/lax/windowed_reductions.py, `_select_and_scatter_add_transpose`.
    """
    (ct,) = cts
    source = init = None
    if op.active[1] and 0 not in op.shape(1):
        window = Window.of(op)
        direction = _selection(op)
        # The one selected so far is kept where the comparison holds: with GT, the last of equals.
        of_equals = "LT" if direction.endswith("E") else "GT"
        places = _chosen(op.x, window, op.shape(1), _STRICT[direction], of_equals)
        source = _read(ct, places, of_equals)
    if op.active[2]:
        init = build.total(ct)
    return [None, source, init]


_STRICT = {"GE": "GT", "GT": "GT", "LE": "LT", "LT": "LT"}
_OTHER_WAY = str.maketrans("GL", "LG")


def _selection(op: Op) -> str:
    """Return the direction of the comparison by which the op selects maxima or minima."""
    block = op.operation.regions[0].blocks[0]
    arguments, found = list(block.arguments), applied(block)
    if found is not None and found.op is not None and found.op.name == "stablehlo.compare":
        direction = build.enumerator(found.op.attributes["comparison_direction"])
        if found.operands == arguments[::-1]:
            direction = direction.translate(_OTHER_WAY)
        elif found.operands != arguments:
            direction = ""
        if direction in _STRICT:
            return direction
    raise unsupported(
        op, "that selects neither maxima nor minima", "select with a comparison: GE or LE"
    )


def _select_and_scatter_activity(op: Op) -> list[bool]:
    return [op.active[1] or op.active[2]]


def _select_and_scatter_rule(linear: Any) -> Rule:
    return _rule(
        "stablehlo.select_and_scatter",
        _scatter_selected_jvp,
        _scatter_selected_vjp,
        linear,
        activity=_select_and_scatter_activity,
    )


_FROM_ZERO = _select_and_scatter_rule(only_in(1))
_FROM_ELSEWHERE = _select_and_scatter_rule(only_in(1, 2))
_AFFINE = _select_and_scatter_rule(never)


def _select_and_scatter_variant(op: Op) -> Rule:
    check_scalars(op, op.operands[2])
    if body_name(op.operation.regions[1]) != "stablehlo.add":
        raise unsupported(op, "that does not scatter by adding", "scatter with an add")
    _selection(op)
    if op.active[2]:
        return _FROM_ELSEWHERE
    return _FROM_ZERO if is_zero(op.operands[2], op.frame.diff.functions) else _AFFINE


by_variant("stablehlo.select_and_scatter", _select_and_scatter_variant)


# --------------------------------------------------------------------------------- batches


@batch("stablehlo.reduce_window")
def _batch_windows(op: MappedOp) -> list[Value] | None:
    """Put windows on each item; all items have to share the initial values, which are scalars."""
    operands = op.leading(len(op.values) // 2)
    return operands and op.again(operands, **Window.of_batch(op).attributes())


@batch("stablehlo.select_and_scatter")
def _batch_selection(op: MappedOp) -> list[Value] | None:
    """Select and scatter in each item; all items have to share the initial value."""
    operands = op.leading(2)
    return operands and op.again(operands, **Window.of_batch(op).attributes_undilated())
