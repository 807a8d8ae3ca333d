"""Builders for dimensions of which only a bound is known: `tensor<?xf32, #stablehlo.bounds<5>>`.

A value of such a type is *cut*: an array of the static type, its *whole*, and the sizes that count.
What lies beyond a size has no value, although XLA may show what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback.ir import build
from pullback.ir.build import Dims, Value

Sizes = Sequence[Value | None]  # one for each dimension, None where it is static


def bounds(type: Any) -> Dims:
    """Return the bound of each dimension: its size if it is static, -1 if it has no bound."""
    shape, encoding = build.shape_of(type), ir.RankedTensorType(type).encoding
    if encoding is None:
        return shape
    given = stablehlo.TypeExtensions(encoding).bounds
    return tuple(max(b, -1) if n < 0 else n for n, b in zip(shape, given, strict=True))


def sizes(v: Value) -> Sizes:
    """Return the size of each dynamic dimension, a value; None for those that are static."""
    return [_size(v, d) if n < 0 else None for d, n in enumerate(build.shape(v))]


def _size(v: Value, dimension: int) -> Value:
    attributes = {"dimension": build.i64(dimension)}
    return build.emit1("stablehlo.get_dimension_size", build.scalar("i32"), [v], attributes)


def whole(v: Value) -> Value:
    """Return the whole of a cut value: set each dynamic size to its bound."""
    limits = bounds(v.type)
    for d, n in enumerate(build.shape(v)):
        if n < 0:
            v = _set_size(v, build.full(build.scalar("i32"), limits[d]), d, limits[d])
    return v


def cut(v: Value, sizes: Sizes) -> Value:
    """Cut a whole to these sizes, one per dimension; None leaves a dimension static."""
    for d, size in enumerate(sizes):
        if size is not None:
            v = _set_size(v, size, d, -1)
    return v


def _set_size(v: Value, size: Value, dimension: int, static: int) -> Value:
    shape, limits = list(build.shape(v)), bounds(v.type)
    shape[dimension] = static
    type = _type(shape, limits, build.info(v.type).element)
    attributes = {"dimension": build.i64(dimension)}
    return build.emit1("stablehlo.set_dimension_size", type, [v, size], attributes)


def _type(shape: Sequence[int], limits: Dims, element: Any) -> Any:
    if -1 not in shape:
        return build.tensor(tuple(shape), element)
    unknown = ir.ShapedType.get_dynamic_size()
    given = ", ".join(str(b) if n < 0 else "?" for n, b in zip(shape, limits, strict=True))
    return ir.RankedTensorType.get(
        [unknown if n < 0 else n for n in shape],
        element,
        build.attr(f"#stablehlo.bounds<{given}>"),
        loc=ir.Location.unknown(_jax.context()),
    )


def inside(v: Value, dimension: int, size: Value) -> Value:
    """Return the mask of elements of a whole whose index along a dimension is less than a size."""
    shape = build.shape(v)
    element = build.info(size.type).element
    index = build.iota(build.tensor(shape, element), dimension)
    return build.compare("LT", index, build.broadcast_in_dim(size, shape, ()))
