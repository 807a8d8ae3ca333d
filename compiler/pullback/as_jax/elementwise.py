"""Ops on each element of arrays by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.as_jax.table import Array, OpInJax, evaluates, plain, register

_OPS = {
    "abs": lax.abs,
    "and": lax.bitwise_and,
    "atan2": lax.atan2,
    "ceil": lax.ceil,
    "complex": lax.complex,
    "count_leading_zeros": lax.clz,
    "divide": lax.div,
    "floor": lax.floor,
    "imag": lax.imag,
    "is_finite": lax.is_finite,
    "maximum": lax.max,
    "minimum": lax.min,
    "negate": lax.neg,
    "not": lax.bitwise_not,
    "or": lax.bitwise_or,
    "popcnt": lax.population_count,
    "power": lax.pow,
    "real": lax.real,
    "remainder": lax.rem,
    "round_nearest_afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_nearest_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "select": lax.select,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
    "subtract": lax.sub,
    "xor": lax.bitwise_xor,
}
register({f"stablehlo.{name}": plain(function) for name, function in _OPS.items()})

_CHLO = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "bessel_i1e": lax.bessel_i1e,
    "conj": lambda x: lax.conj(x) if jnp.iscomplexobj(x) else x,
    "cosh": lax.cosh,
    "digamma": lax.digamma,
    "erf": lax.erf,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "is_inf": lambda x: lax.eq(lax.abs(x), lax.full_like(x, np.inf)),
    "is_neg_inf": lambda x: lax.eq(x, lax.full_like(x, -np.inf)),
    "is_pos_inf": lambda x: lax.eq(x, lax.full_like(x, np.inf)),
    "lgamma": lax.lgamma,
    "mulhi": lambda x, y: lax.mulhi(x, y),  # only newer versions of JAX have it
    "next_after": lax.nextafter,
    "polygamma": lax.polygamma,
    "sinh": lax.sinh,
    "square": lax.square,
    "tan": lax.tan,
    "zeta": lax.zeta,
}
register({f"chlo.{name}": plain(function) for name, function in _CHLO.items()})


def _boolean(of_numbers: Callable[..., Array], of_bools: Callable[..., Array]) -> Any:
    """Return an op that is logical on bools, which JAX has under another name."""
    return plain(lambda x, y: of_bools(x, y) if x.dtype == bool else of_numbers(x, y))


register(
    {
        "stablehlo.add": _boolean(lax.add, lax.bitwise_or),
        "stablehlo.multiply": _boolean(lax.mul, lax.bitwise_and),
    }
)


@evaluates("stablehlo.clamp")
def _clamp(op: OpInJax, low: Array, x: Array, high: Array) -> Array:
    """Clamp between bounds, which JAX can differentiate by in the shape of the others only."""
    return lax.clamp(*(lax.broadcast_in_dim(b, x.shape, range(b.ndim)) for b in (low, x, high)))


@evaluates("stablehlo.sign")
def _sign(op: OpInJax, x: Array) -> Array:
    """Return the sign; that of a complex number has a derivative, which JAX leaves out."""
    if not jnp.iscomplexobj(x):
        return lax.sign(x)
    is_zero = lax.eq(x, lax.full_like(x, 0))
    other = lax.select(is_zero, lax.full_like(x, 1), x)
    size = lax.abs(other)
    return lax.select(is_zero, x, lax.div(other, lax.complex(size, lax.full_like(size, 0))))


# -------------------------------------------------------------------- with a result accuracy

_ACCURATE = {
    "cbrt": lax.cbrt,
    "cosine": lax.cos,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "logistic": lax.logistic,
    "rsqrt": lax.rsqrt,
    "sine": lax.sin,
    "sqrt": lax.sqrt,
    "tan": lax.tan,
    "tanh": lax.tanh,
}


@evaluates(*(f"stablehlo.{name}" for name in _ACCURATE))
def _accurate(op: OpInJax, x: Array) -> Array:
    function = _ACCURATE[op.name.removeprefix("stablehlo.")]
    accuracy = _accuracy(op)
    return function(x) if accuracy is None else function(x, accuracy=accuracy)


def _accuracy(op: OpInJax) -> Any:
    """Return the accuracy that an op asks for; None for the default."""
    if "result_accuracy" not in op.attributes:
        return None
    text = str(op.attributes["result_accuracy"])
    mode = re.search(r"\b(DEFAULT|HIGHEST|TOLERANCE)\b", text)
    if mode is None or mode[1] == "TOLERANCE":
        found = {name: re.search(rf"{name} = ([-+\d.eE]+)", text) for name in ("atol", "rtol")}
        ulps = re.search(r"ulps = (\d+)", text)
        numbers = {name: float(each[1]) if each else 0.0 for name, each in found.items()}
        return lax.Tolerance(**numbers, ulps=int(ulps[1]) if ulps else 0)
    return None if mode[1] == "DEFAULT" else lax.AccuracyMode.HIGHEST


# --------------------------------------------------------------------- comparisons and types

COMPARISONS = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


@evaluates("stablehlo.compare")
def _compare(op: OpInJax, x: Array, y: Array) -> Array:
    if op.word("compare_type") == "TOTALORDER" and jnp.issubdtype(x.dtype, jnp.floating):
        x, y = total_order(x), total_order(y)
    return COMPARISONS[op.word("comparison_direction")](x, y)


def total_order(x: Array) -> Array:
    """Return integers in the total order of floats, where -0 is below 0, and NaNs are outermost."""
    bits = jnp.iinfo(f"int{x.dtype.itemsize * 8}")
    found = lax.bitcast_convert_type(x, bits.dtype)
    flipped = lax.bitwise_xor(found, lax.full_like(found, bits.max))
    return lax.select(lax.lt(found, lax.full_like(found, 0)), flipped, found)


@evaluates("stablehlo.convert")
def _convert(op: OpInJax, x: Array) -> Array:
    if jnp.iscomplexobj(x) and not jnp.issubdtype(op.dtype, jnp.complexfloating):
        x = lax.real(x)
    return lax.convert_element_type(x, op.dtype)


register(
    {
        "stablehlo.bitcast_convert": lambda op, x: lax.bitcast_convert_type(x, op.dtype),
        "stablehlo.reduce_precision": lambda op, x: lax.reduce_precision(
            x, op.number("exponent_bits"), op.number("mantissa_bits")
        ),
    }
)


@evaluates("stablehlo.map")
def _map(op: OpInJax, *operands: Array) -> list[Array]:
    """Apply a function of scalars to arrays, as a batch along all dimensions."""
    dims = op.integers("dimensions")
    if dims != tuple(range(operands[0].ndim)):
        raise op.refusal(f"over the dimensions {dims} alone")
    flat = [lax.reshape(x, (math.prod(x.shape),)) for x in operands]
    results = jax.vmap(op.regions[0])(*flat)
    return [lax.reshape(r, op.shape) for r in results]
