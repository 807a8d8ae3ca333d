"""Differentiate CHLO's special functions by JAX's formula for the primitive that lowers to each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.autodiff.batch_rules import MappedOp, batch, batch_alike, shifted
from pullback.autodiff.checks import missing_rule
from pullback.autodiff.registry import (
    Op,
    Tangents,
    by_its_parts,
    elementwise,
    linear,
    nondifferentiable,
    only_in,
    unsupported,
)
from pullback.ir import build
from pullback.ir.build import (
    Value,
    add,
    div,
    exp,
    full_like,
    mul,
    neg,
    round_nearest_even,
    rsqrt,
    select,
    sin,
    square,
    sub,
)
from pullback.rules.bessel import bessel_i0e
from pullback.rules.derived import by_expansion


def _chlo(name: str, *operands: Value) -> Value:
    return build.emit1(f"chlo.{name}", operands[0].type, list(operands))


def _unknown(op: Op, t: Value) -> Value:
    """Raise MissingRuleError: there is no closed form, and JAX has no derivative here either."""
    raise missing_rule(op.operation, op.name, " in its first operand")


def _one_minus_square(x: Value) -> Value:
    """Emit 1 - x² as (1 - x)(1 + x), which keeps the digits near ±1."""
    return mul(sub(1.0, x), add(x, 1.0))


# ---------------------------------------------------------------------------- trigonometry
elementwise("chlo.asin", lambda op, t: mul(t, rsqrt(_one_minus_square(op.x))))
elementwise("chlo.acos", lambda op, t: neg(mul(t, rsqrt(_one_minus_square(op.x)))))
elementwise("chlo.atan", lambda op, t: div(t, add(square(op.x), 1.0)))
elementwise("chlo.tan", lambda op, t: mul(t, add(square(op.result), 1.0)), by_result=True)
elementwise("chlo.sinh", lambda op, t: mul(t, _chlo("cosh", op.x)))
elementwise("chlo.cosh", lambda op, t: mul(t, _chlo("sinh", op.x)))
elementwise("chlo.asinh", lambda op, t: mul(t, rsqrt(add(square(op.x), 1.0))))
elementwise(
    "chlo.acosh",
    lambda op, t: mul(t, mul(rsqrt(sub(op.x, 1.0)), rsqrt(add(op.x, 1.0)))),
)
elementwise("chlo.atanh", lambda op, t: div(t, _one_minus_square(op.x)))

# ------------------------------------------------------------------------- error functions
_GAUSS = 2 / math.sqrt(math.pi)


def _exp_of_negative_square(x: Value) -> Value:
    """Emit exp(-x²), whose derivative is 0 where x² is so large that it underflows in each type."""
    x2 = square(x)
    return select(build.compare("GT", x2, 800.0), None, exp(neg(x2)))


elementwise("chlo.erf", lambda op, t: mul(_GAUSS, mul(t, _exp_of_negative_square(op.x))))
elementwise("chlo.erfc", lambda op, t: mul(-_GAUSS, mul(t, _exp_of_negative_square(op.x))))
elementwise(
    "chlo.erf_inv",
    lambda op, t: mul(1 / _GAUSS, mul(t, exp(square(op.result)))),
    by_result=True,
)


# --------------------------------------------------------------------- gamma, zeta, Bessel
def _polygamma_argument(op: Op, t: Value) -> Value:
    return mul(t, _chlo("polygamma", add(op.lhs, 1.0), op.rhs))


def _trigamma(x: Value) -> Value:
    """Emit ψ'(x); for negative x by reflection, (π / sin πx)² - ψ'(1 - x).

    JAX has polygamma(1, x), of which XLA computes another number below -9.
    """
    left = build.compare("LT", x, 0.0)
    right = _chlo("polygamma", full_like(x, 1.0), select(left, sub(1.0, x), x))
    phase = select(left, sub(x, round_nearest_even(x)), full_like(x, 0.5))
    reflected = sub(square(div(math.pi, sin(mul(phase, math.pi)))), right)
    return select(left, reflected, right)


def _zeta_offset(op: Op, t: Value) -> Value:
    """Emit t dζ(x, q)/dq, where dζ(x, q)/dq = -x ζ(x + 1, q)."""
    return mul(neg(t), mul(op.lhs, _chlo("zeta", add(op.lhs, 1.0), op.rhs)))


def _bessel_i1e(op: Op, t: Value) -> Value:
    """Emit t times i0e(x) - i1e(x) (sign(x) + 1/x), 1/2 at 0; computed in at least float32."""
    kind = build.info(op.x.type)
    wide = kind.element if kind.bits >= 32 else build.element_type("f32")
    x, y = build.convert(op.x, wide), build.convert(op.result, wide)
    epsilon = {32: 2.0**-23, 64: 2.0**-52}.get(kind.bits, 2.0**-10)
    tiny = build.compare("LE", build.abs(x), epsilon)
    safe = select(tiny, full_like(x, epsilon), x)
    slope = sub(bessel_i0e(safe), mul(y, add(build.sign(safe), div(1.0, safe))))
    return mul(t, build.convert(select(tiny, full_like(x, 0.5), slope), kind.element))


elementwise("chlo.lgamma", lambda op, t: mul(t, _chlo("digamma", op.x)))
elementwise("chlo.digamma", lambda op, t: mul(t, _trigamma(op.x)))
elementwise("chlo.polygamma", _unknown, _polygamma_argument)
elementwise("chlo.zeta", _unknown, _zeta_offset)
elementwise("chlo.bessel_i1e", _bessel_i1e)

# ------------------------------------------------------------------------------- the rest
elementwise("chlo.square", lambda op, t: mul(t, mul(op.x, 2.0)))
elementwise(
    "chlo.next_after",
    # The neighbour of x has the tangent of x; the second operand only says on which side it lies.
    lambda op, t: t,
    lambda op, t: None,
    linear=only_in(0),
)


def conj(op: Op, cts: Tangents) -> list[Value | None]:
    """Conjugate the cotangent: with a pairing that has no conjugates, conj is its own transpose."""
    return [build.conj(cts[0])]


linear("chlo.conj", conj, elementwise=True)
batch_alike("chlo.conj", "chlo.constant_like", "chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf")
batch_alike("chlo.mulhi")

nondifferentiable(
    "the result is boolean",
    *(f"chlo.{name}" for name in ("broadcast_compare", "is_inf", "is_neg_inf", "is_pos_inf")),
    module=__name__,
)
nondifferentiable(
    "the value does not depend on the operand",
    "chlo.constant",
    "chlo.constant_like",
    module=__name__,
)
nondifferentiable(
    "acts on integers",
    "chlo.mulhi",
    *(
        f"chlo.broadcast_{name}"
        for name in "and or xor shift_left shift_right_arithmetic shift_right_logical".split()
    ),
    module=__name__,
)


# --------------------------------------------------------------------- implicit broadcasts
def _explicit(name: str) -> None:
    """Register rules of the `chlo.broadcast_` form of an op, which broadcasts as NumPy does."""

    def expand(op: Op, operands: Sequence[Value]) -> Value:
        shape = build.shape_of(op.result_type)
        return build.emit1(name, op.result_type, [_spread(op, v, shape) for v in operands])

    implicit = f"chlo.broadcast_{name.partition('.')[2]}"
    by_expansion(implicit, expand, linear=by_its_parts, family="chlo", elementwise=True)

    @batch(implicit)
    def batched(op: MappedOp) -> Value | None:
        shape = build.shape_of(op.results[0])
        if not all(_are_last(op, len(op.shape(i)), shape) for i in range(len(op.values))):
            return None
        operands = [_spread_in_batch(op, i, shape) for i in range(len(op.values))]
        return build.emit1(name, op.type(), operands)


def _spread(op: Op, v: Value, shape: tuple[int, ...]) -> Value:
    dimensions = tuple(range(len(shape) - build.rank(v), len(shape)))
    if not _are_last(op, len(dimensions), shape):
        raise unsupported(
            op,
            "whose broadcast_dimensions are not the last ones, which XLA does not take either",
            "use stablehlo.broadcast_in_dim",
        )
    return build.broadcast_in_dim(v, shape, dimensions)


def _are_last(op: Op | MappedOp, rank: int, shape: tuple[int, ...]) -> bool:
    """Return True if an operand of this rank is broadcast along leading dimensions, as in NumPy."""
    given, last = op.attributes.get("broadcast_dimensions"), range(len(shape) - rank, len(shape))
    return given is None or not 0 < rank < len(shape) or given == build.i64s(tuple(last))


def _spread_in_batch(op: MappedOp, index: int, shape: tuple[int, ...]) -> Value:
    first = len(shape) - len(op.shape(index))
    dimensions = range(first, len(shape))
    own = (0, *shifted(dimensions)) if op.batched[index] else shifted(dimensions)
    return build.broadcast_in_dim(op.values[index], (op.size, *shape), own)


_STABLEHLO = "add atan2 complex divide maximum minimum multiply power remainder select subtract"
for _name in _STABLEHLO.split():
    _explicit(f"stablehlo.{_name}")
for _name in ("next_after", "polygamma", "zeta"):
    _explicit(f"chlo.{_name}")
