"""Queries and constructors of MLIR types and attributes, memoized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from pullback import _jax
from pullback._jax import ir

Value = Any  # ir.Value: jaxlib ships no type stubs
Dims = tuple[int, ...]
Number = int | float | complex | bool


# ---------------------------------------------------------------------------------- types


class TypeInfo(NamedTuple):
    """What rules query of a type: shape, element type, and kind 'f', 'c', 'i', 'b' or '?'."""

    shape: tuple[int, ...]
    element: Any
    kind: str
    bits: int  # of one element


@_jax.cached
def info(type: Any) -> TypeInfo:
    """Return shape, element type and kind of a ranked tensor type; kind '?' for any other."""
    try:
        ranked = ir.RankedTensorType(type)
    except ValueError:
        return TypeInfo((), None, "?", 0)
    element = ranked.element_type
    dynamic = ir.ShapedType.get_dynamic_size()
    shape = tuple(-1 if d == dynamic else d for d in ranked.shape)
    kind, bits = _kind(element)
    return TypeInfo(shape, element, kind, bits)


def _kind(element: Any) -> tuple[str, int]:
    text = str(element)
    if text.startswith("complex"):
        return "c", 2 * _kind(ir.ComplexType(element).element_type)[1]
    if isinstance(element, ir.IntegerType):
        width = ir.IntegerType(element).width
        return ("b" if width == 1 else "i"), width
    if isinstance(element, ir.FloatType) or text.startswith(("f", "bf")):
        return "f", ir.FloatType(element).width if isinstance(element, ir.FloatType) else 8
    return "?", 0


def holds(type: Any, value: int) -> bool:
    """Return True if this is an integer type that can represent `value`."""
    element, kind, bits = info(type)[1:]
    if kind not in "ib":
        return False
    signed = kind == "i" and not ir.IntegerType(element).is_unsigned
    low = -(1 << bits - 1) if signed else 0
    return low <= value < low + (1 << bits)


def wrapped(type: Any, value: int) -> int:
    """Return what an integer type holds where arithmetic in it gives `value`."""
    bits = info(type).bits
    value %= 1 << bits
    return value if holds(type, value) else value - (1 << bits)


@_jax.cached
def inexact(type: Any) -> bool:
    """Return True if values of the type have tangents: float or complex elements."""
    return info(type).kind in "fc"


@_jax.cached
def hides_inexact(type: Any) -> bool:
    """Return True if the type holds floats that have no tangent slot, as a tuple does."""
    if isinstance(type, ir.TupleType):
        elements = [type.get_type(i) for i in range(type.num_types)]
        return any(inexact(t) or hides_inexact(t) for t in elements)
    return isinstance(type, (ir.FloatType, ir.ComplexType, ir.MemRefType, ir.UnrankedTensorType))


def shape_of(type: Any) -> tuple[int, ...]:
    return info(type).shape


def shape(v: Value) -> tuple[int, ...]:
    return info(v.type).shape


def rank(v: Value) -> int:
    return len(info(v.type).shape)


def size_in_bytes(type: Any) -> int:
    """Return the bytes of a value of the type; dynamic dimensions count as one."""
    t = info(type)
    return math.prod(d for d in t.shape if d >= 0) * max(t.bits // 8, 1)


@_jax.cached
def tensor(shape: tuple[int, ...], element: Any) -> Any:
    """Return the type tensor<shape x element>; a dimension of -1 is dynamic."""
    dynamic = ir.ShapedType.get_dynamic_size()
    dims = [dynamic if d < 0 else d for d in shape]
    return ir.RankedTensorType.get(dims, element, loc=ir.Location.unknown(_jax.context()))


@_jax.cached
def with_shape(type: Any, shape: tuple[int, ...]) -> Any:
    return tensor(shape, info(type).element)


@_jax.cached
def with_element(type: Any, element: Any) -> Any:
    """Return the type with another element type and the same shape, bounds included."""
    ranked = ir.RankedTensorType(type)
    if ranked.encoding is None:
        return tensor(info(type).shape, element)
    loc = ir.Location.unknown(_jax.context())
    return ir.RankedTensorType.get(ranked.shape, element, ranked.encoding, loc=loc)


@_jax.cached
def real_element(type: Any) -> Any:
    """Return the element type of the real part."""
    t = info(type)
    return ir.ComplexType(t.element).element_type if t.kind == "c" else t.element


def counting(type: Any) -> Any:
    """Return a float element type that can count the elements of an array of this float type.

    Floats of 16 bits or fewer overflow, or skip integers, at sizes that arrays have.
    """
    t = info(type)
    return t.element if t.bits >= 32 else element_type("f32")


@_jax.of_context
def scalar(text: str) -> Any:
    """Return the rank-0 tensor type of an element type given as text: `scalar('i32')`."""
    return ir.Type.parse(f"tensor<{text}>", _jax.context())


@_jax.of_context
def element_type(text: str) -> Any:
    """Return an element type given as text: `element_type('i32')`."""
    return info(scalar(text)).element


# ----------------------------------------------------------------------------- attributes


@_jax.of_context
def attr(text: str) -> Any:
    """Return an attribute from its MLIR spelling, parsed once."""
    return ir.Attribute.parse(text, _jax.context())


@_jax.of_context
def i64s(values: tuple[int, ...]) -> Any:
    return ir.DenseI64ArrayAttr.get(values, _jax.context())


def enumerator(attribute: Any) -> str:
    """Return the value of an enum attribute as text, such as `LT`."""
    return str(attribute).split()[-1].rstrip(">")


def flag(op: Any, name: str) -> bool:
    """Return a boolean attribute of an op, or of a record of one; False if it is absent."""
    attributes = op.attributes
    return name in attributes and ir.BoolAttr(attributes[name]).value


def number(op: Any, name: str) -> int:
    """Return an integer attribute of an op, or of a record of one."""
    return int(ir.IntegerAttr(op.attributes[name]).value)


@_jax.cached
def integers(attribute: Any) -> tuple[int, ...]:
    """Return the values of an integer-array attribute."""
    return tuple(ir.DenseI64ArrayAttr(attribute))


def integers_or_ones(attributes: Any, name: str, count: int) -> tuple[int, ...]:
    """Return an integer-array attribute of a window, one per dimension; ones if it is absent."""
    return integers(attributes[name]) if name in attributes else (1,) * count


def paddings(attributes: Any, count: int) -> list[tuple[int, int]]:
    """Return the low and high padding of each dimension of a window."""
    if "padding" not in attributes or not count:
        return [(0, 0)] * count
    given = np.asarray(ir.DenseIntElementsAttr(attributes["padding"]))
    return [(int(low), int(high)) for low, high in np.broadcast_to(given, (count, 2))]


def i64(value: int) -> Any:
    return attr(f"{value} : i64")


def i64_rows(rows: Sequence[Sequence[int]], columns: int = 2) -> Any:
    """Return a matrix of integers as an attribute; it may have no rows."""
    return attr(f"dense<{list(map(list, rows)) or ''}> : tensor<{len(rows)}x{columns}xi64>")


def truth(value: bool) -> Any:
    return attr("true" if value else "false")


@_jax.of_context
def symbol(name: str) -> Any:
    return ir.FlatSymbolRefAttr.get(name, _jax.context())


@_jax.of_context
def string(text: str) -> Any:
    return ir.StringAttr.get(text, _jax.context())


_INFINITY = {"f16": "7C00", "bf16": "7F80", "f32": "7F800000", "f64": "7FF0000000000000"}
_MINUS_INFINITY = {"f16": "FC00", "bf16": "FF80", "f32": "FF800000", "f64": "FFF0000000000000"}
_NAN = {"f16": "7E00", "bf16": "7FC0", "f32": "7FC00000", "f64": "7FF8000000000000"}


def _float_literal(value: float, element: str) -> str:
    if element not in _NAN:
        return _small_literal(value, element)
    if math.isnan(value):
        return "0x" + _NAN[element]
    if math.isinf(value):
        return "0x" + (_INFINITY if value > 0 else _MINUS_INFINITY)[element]
    return f"{value:.17e}"


def _small_literal(value: float, element: str) -> str:
    """Spell a float of 8 bits or fewer.

    In a type without infinities, infinity becomes the largest number; what overflows is NaN.
    """
    dtype = np.dtype(f"float{element[1]}_{element[2:].lower()}")
    if math.isinf(value) and not np.isinf(np.array(value, dtype)):
        limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        value = float(limits.max if value > 0 else limits.min)
    found = np.array(value, dtype)
    if value == 0 or np.isfinite(found):
        return f"{value:.17e}"
    return f"0x{int(found.view(np.uint8)):02X}"


def splat(type: Any, value: Number) -> Any:
    """Return a dense attribute with every element `value`."""
    return _splat(type, value, sign_of(value))


@_jax.cached
def _splat(type: Any, value: Any, sign: str) -> Any:
    t = info(type)
    if t.kind == "f":
        literal = _float_literal(float(value), str(t.element))
    elif t.kind == "b":
        literal = "true" if value else "false"
    else:
        literal = str(int(value))
    return attr(f"dense<{literal}> : {type}")


def sign_of(value: Number) -> str:
    """Return the sign as text: a key that tells -0.0 from 0.0, which compare equal."""
    negative = isinstance(value, float) and math.copysign(1.0, value) < 0
    return "-" if negative else "+"
