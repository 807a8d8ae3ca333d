"""Differentiate elementwise ops: one line per op, with a factor for each operand.

`lambda op, t: …` is `t` times the partial derivative; it serves tangents and cotangents alike.
Each follows the rule of the JAX primitive that lowers to the op, ties and edge cases included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pullback import _jax
from pullback.autodiff.batch_rules import BATCHES, MappedOp, along, batch, batch_alike
from pullback.autodiff.pending import Masked, chosen, emitted
from pullback.autodiff.registry import (
    Op,
    Rule,
    Tangents,
    elementwise,
    jointly,
    linear,
    nondifferentiable,
    only_in,
    product,
    register,
    rule,
    separately,
    unsupported,
)
from pullback.ir import build
from pullback.ir.build import (
    Value,
    abs,
    add,
    and_,
    compare,
    cos,
    div,
    exp,
    full_like,
    log,
    maximum,
    mul,
    neg,
    pow,
    round_nearest_even,
    select,
    sin,
    square,
    sub,
)
from pullback.ir.traits import ELEMENTWISE
from pullback.rules.shape import unbroadcast


def same(op: Op, t: Value) -> Value:
    return t


def minus(op: Op, t: Value) -> Value:
    return neg(t)


# ------------------------------------------------------------------------------ arithmetic
elementwise("stablehlo.add", same, same, linear=jointly)
elementwise("stablehlo.negate", minus, linear=jointly)


_ALIKE: Any = {"family": "elementwise", "keeps_type": True, "alike": True, "reads": ()}


@rule("stablehlo.subtract", linear=jointly, hands_on=True, **_ALIKE)
class Subtract:
    """The difference of the tangents."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return [sub(*tangents)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> tuple[Value | None, Value | None]:
        (ct,), (first, second) = cts, op.active
        return ct if first else None, neg(ct) if second else None


@rule("stablehlo.multiply", linear=separately, **_ALIKE)
class Multiply:
    """Each factor times the tangent of the other; for a square, twice the same term.

    In reverse mode, a square has the cotangent times twice the factor: XLA joins the 2 with other
    constants, and computes a sum of two equal terms again for each use, with all that it is made
    of. Twice the cotangent would overflow in half precision where losses are scaled; twice a
    factor does not where its square does not.
    """

    series = staticmethod(product)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        left = mul(tangents[0], op.rhs)
        if op.operands[0] == op.operands[1]:
            return [add(left, left)]
        return [add(left, mul(op.lhs, tangents[1]))]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> tuple[Value | None, Value | None]:
        (ct,), (first, second) = cts, op.active
        if first and op.operands[0] == op.operands[1]:
            return mul(ct, mul(op.rhs, 2.0)), None
        return mul(ct, op.rhs) if first else None, mul(op.lhs, ct) if second else None


def _quotient_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    """Emit dx / y - (x / y) (dy / y) as two terms, since both are infinite at y = 0."""
    dx, dy = tangents
    return [sub(div(dx, op.rhs), None if dy is None else _by_divisor(op, dy))]


def _quotient_vjp(op: Op, cts: Tangents) -> tuple[Value | None, Value | None]:
    (ct,), (first, second) = cts, op.active
    return div(ct, op.rhs) if first else None, neg(_by_divisor(op, ct)) if second else None


def _by_divisor(op: Op, t: Value) -> Value:
    """Emit (x / y) (t / y) with the reciprocal of y, so that XLA need not keep the quotient.

    XLA fuses the reciprocal into what uses it. The square of y might overflow its type, and that of
    a reciprocal, which the next derivative computes, a small type.
    """
    if not _has_room(op.result_type):
        return mul(div(t, op.rhs), op.result)
    reciprocal = div(1.0, op.rhs)
    return mul(mul(t, reciprocal), mul(op.lhs, reciprocal))


def _by_repeated_vjp(op: Op, cts: Sequence[Any]) -> Sequence[Any]:
    """Emit the vjp of x / y for a y that is broadcast: sum over its copies first, then divide.

    The broadcast of y is emitted again: XLA takes the reciprocal of the small array if that has no
    other use, and keeps no array of full size. Where a `select` takes only some of the quotients,
    nothing is summed before the terms of the others are zero: they may be infinite.
    """
    (ct,), (first, second), repeat = cts, op.active, op.operands[1].owner.operation
    if ct.__class__ is Masked:
        return ct.through(_quotient_vjp(op, [ct.ct]))
    (source,) = repeat.operands
    y = op.frame.primal(source)
    quotient = div(emitted(ct), build.clone(repeat, [y]).result)
    if second:
        op.frame.accumulate(source, neg(div(unbroadcast(repeat, mul(quotient, op.lhs)), y)))
    return quotient if first else None, None


def _by_what_is_divided(op: Op) -> Rule:
    divisor = op.operands[1]
    if not op.active[1] or not build.is_result_of(divisor, "stablehlo.broadcast_in_dim"):
        return QUOTIENT
    repeat, shape = divisor.owner.operation, build.shape(divisor)
    (small,) = repeat.operands
    is_repeated = build.shape(small) != shape and not {-1, 0} & set(shape)
    is_here = repeat.block == op.operation.block  # so its cotangents are carried where these are
    return BY_REPEATED if is_repeated and is_here and _has_room(divisor.type) else QUOTIENT


@_jax.cached
def _has_room(type: Any) -> bool:
    """Return True if products of moderate numbers fit into the type: in f16, they do not."""
    return str(build.info(type).element) in {"bf16", "f32", "f64", "complex<f32>", "complex<f64>"}


def _quotient_series(op: Op, inputs: Sequence[Any], z: Any) -> Callable[[int], Value | None]:
    """Find the Taylor coefficients of z = x / y by those of x = z y."""
    x, y = inputs

    def find(k: int) -> Value | None:
        known = functools.reduce(add, [mul(z[j], y[k - j]) for j in range(k)])
        return div(sub(x[k], known), op.rhs)

    return find


QUOTIENT = Rule(
    "stablehlo.divide",
    _quotient_jvp,
    _quotient_vjp,
    only_in(0),
    __name__,
    series=_quotient_series,
    **_ALIKE,
)
BY_REPEATED = replace(QUOTIENT, vjp=_by_repeated_vjp, alike=False, chooses=True)
register(replace(QUOTIENT, variant=_by_what_is_divided))


def _whole_quotient(op: Op, t: Value) -> Value:
    """Emit -n t for x rem y = x - y n, with the whole number n constant between its steps.

    It is not the whole part of x / y, as in JAX: 1 / 0.1 is rounded to 10, but 1 rem 0.1 is
    1 - 9 · 0.1.
    """
    if build.info(t.type).kind == "c":
        raise unsupported(
            op, "of complex numbers, which XLA does not run either", "write it for the parts"
        )
    is_number = compare("EQ", op.result, op.result)
    rest = select(is_number, op.result, build.zeros(t.type))  # x / 0 is infinite, as in JAX
    n = div(sub(op.lhs, rest), op.rhs)
    return neg(mul(t, round_nearest_even(n)))


elementwise("stablehlo.remainder", same, _whole_quotient, linear=only_in(0))

# ---------------------------------------------------------------------- powers, exponentials
elementwise("stablehlo.exponential", lambda op, t: mul(t, op.result), by_result=True)
elementwise(
    "stablehlo.exponential_minus_one",
    # Not y + 1: where x is far below 0, y rounds to -1.
    lambda op, t: mul(t, exp(op.x)),
)
elementwise("stablehlo.log", lambda op, t: div(t, op.x))
elementwise("stablehlo.log_plus_one", lambda op, t: div(t, add(op.x, 1.0)))
elementwise(
    "stablehlo.sqrt",
    # By a reciprocal, as for quotients.
    lambda op, t: (
        mul(t, div(0.5, op.result)) if _has_room(op.result_type) else div(mul(t, 0.5), op.result)
    ),
    by_result=True,
)


def _slope_of_rsqrt(y: Value) -> Value | None:
    """Emit -|y| y² / 2, which is -inf for y = -inf, that is at -0.

    Not y / x: XLA fuses products into what uses them, and keeps the array of a quotient.
    """
    return mul(mul(-0.5, y if build.info(y.type).kind == "c" else build.abs(y)), square(y))


elementwise("stablehlo.rsqrt", lambda op, t: mul(t, _slope_of_rsqrt(op.result)), by_result=True)
elementwise(
    "stablehlo.cbrt",
    # Not by y²: its change is 0 times an infinite one at 0, and infinite times 0 at infinity.
    lambda op, t: div(div(mul(t, 1 / 3), op.result), op.result),
    by_result=True,
)
elementwise(
    "stablehlo.logistic", lambda op, t: mul(t, mul(op.result, sub(1.0, op.result))), by_result=True
)


def _power_base(op: Op, t: Value) -> Value:
    """Emit t y x^(y-1), and 0 where x and y are both 0, as for an integer exponent in JAX."""
    x, y = op.lhs, op.rhs
    both_zero = and_(compare("EQ", x, 0.0), compare("EQ", y, 0.0))
    return mul(t, mul(y, pow(select(both_zero, full_like(x, 1), x), sub(y, 1.0))))


def _power_exponent(op: Op, t: Value) -> Value:
    """Emit t log(x) x^y, and 0 where x is 0."""
    return mul(t, mul(log(_or_one(op.lhs)), op.result))


def _or_one(v: Value) -> Value:
    return select(compare("EQ", v, 0.0), full_like(v, 1), v)


elementwise("stablehlo.power", _power_base, _power_exponent)

# ---------------------------------------------------------------------------- trigonometry
elementwise("stablehlo.sine", lambda op, t: mul(t, cos(op.x)))
elementwise("stablehlo.cosine", lambda op, t: mul(t, neg(sin(op.x))))
elementwise("stablehlo.tan", lambda op, t: mul(t, add(square(op.result), 1.0)), by_result=True)
elementwise(
    "stablehlo.tanh",
    # (1 - y)(1 + y) keeps more digits than 1 - y² where y is near 1; t (1 + y) may be infinite.
    lambda op, t: mul(t, mul(add(op.result, 1.0), sub(1.0, op.result))),
    by_result=True,
)
elementwise(
    "stablehlo.atan2",
    lambda op, t: mul(t, div(op.rhs, add(square(op.lhs), square(op.rhs)))),
    lambda op, t: mul(t, div(neg(op.lhs), add(square(op.lhs), square(op.rhs)))),
)


# ------------------------------------------------------------------------------- selection
def _share(t: Value, mine: Value, other: Value, direction: str) -> Value:
    """Emit t where this operand is the result, t/2 where both are, else 0.

    Neither is compared with the result: a compiler that computes an operand twice may round it in
    two ways, and then neither would equal it.
    """
    whole = select(compare(direction, mine, other), full_like(mine, 1), None)
    return mul(t, select(compare("EQ", mine, other), full_like(mine, 0.5), whole))


def _extremum(name: str, direction: str) -> None:
    elementwise(
        name,
        lambda op, t: _share(t, op.lhs, op.rhs, direction),
        lambda op, t: _share(t, op.rhs, op.lhs, direction),
    )


_extremum("stablehlo.maximum", "GT")
_extremum("stablehlo.minimum", "LT")


@rule(
    "stablehlo.select",
    linear=jointly,
    keeps_type=True,
    reads=(),
    family="elementwise",
    elementwise=True,
    chooses=True,
)
class Select:
    """The tangent of the operand that is chosen; the predicate has none."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return [select(op.operand(0), *tangents[1:])]

    @staticmethod
    def vjp(op: Op, cts: Sequence[Any]) -> list[Any]:
        (ct,), (_, first, second) = cts, op.active
        predicate = op.operand(0)
        return [
            None,
            chosen(ct, predicate, True) if first else None,
            chosen(ct, predicate, False) if second else None,
        ]


@rule("stablehlo.clamp", keeps_type=True, reads=(), family="elementwise", elementwise=True)
class Clamp:
    """The tangent of the operand that min(max(low, x), high) picks; zero at a tie with x."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        low, x, high = (_spread(op.operand(i), op.result_type) for i in range(3))
        total = None
        for i, t in enumerate(tangents):
            if t is not None:
                chosen = _chosen(i, low, x, high)
                total = add(total, select(chosen, _spread(t, op.result_type), None))
        return [total]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        low, x, high = (_spread(op.operand(i), op.result_type) for i in range(3))
        return [
            _gather(select(_chosen(i, low, x, high), cts[0], None), op.shape(i)) if a else None
            for i, a in enumerate(op.active)
        ]


def _chosen(index: int, low: Value, x: Value, high: Value) -> Value:
    """Return the mask of where the operand of that index is the result."""
    if index == 0:
        return and_(compare("GT", low, x), compare("LT", low, high))
    if index == 1:
        return and_(compare("GT", x, low), compare("LT", x, high))
    return compare("LT", high, maximum(low, x))  # high also wins from a low that is above it


def _spread(v: Value, type: Any) -> Value:
    """Broadcast a scalar bound to the shape of the result."""
    return build.broadcast_in_dim(v, build.info(type).shape, ())


def _gather(ct: Value, shape: tuple[int, ...]) -> Value:
    """Transpose `_spread`: sum the cotangent if the operand is a scalar."""
    return ct if build.shape(ct) == shape else build.total(ct)


# ------------------------------------------------------------------- complex numbers, types
@rule("stablehlo.abs", keeps_type=True, family="elementwise", elementwise=True, hands_on=True)
class Abs:
    """sign(x), 1 at 0; for complex x, the real part of dx conj(x) / |x|, 0 at 0."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        (t,) = tangents
        if build.info(op.operands[0].type).kind == "f":
            return [_signed(op, t)]
        return [build.real(mul(t, _direction(op)))]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        (ct,) = cts
        if build.info(op.operands[0].type).kind == "f":
            return [_signed(op, ct)]
        ct = build.converted(ct, op.result_type)
        return [mul(build.complex_(ct, None), _direction(op))]


def _signed(op: Op, t: Value) -> Value:
    return select(compare("GE", op.x, 0.0), t, neg(t))


def _direction(op: Op) -> Value:
    """Emit conj(x) / |x|, 0 where x is 0."""
    return div(build.conj(op.x), build.complex_(_or_one(op.result), None))


@rule("stablehlo.sign", family="elementwise", elementwise=True)
class Sign:
    """Zero for real x; for complex x, i y Im(conj(y) dx) / |x|, 0 at 0.

    Source: jax/_src/lax/lax.py of JAX 0.12, `_sign_jvp_rule`; earlier ones take it to be zero.
    """

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return [build.info(op.result_type).kind == "c"]

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        if build.info(op.result_type).kind != "c":
            return [None]
        turn = div(build.imag(mul(build.conj(op.result), tangents[0])), _size(op))
        return [mul(build.complex_(None, turn), op.result)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        turn = div(build.imag(mul(op.result, cts[0])), _size(op))
        return [mul(build.complex_(None, turn), build.conj(op.result))]


def _size(op: Op) -> Value:
    """Emit |x|, or 1 where x is 0."""
    return _or_one(abs(op.x))


@rule(
    "stablehlo.real",
    linear=jointly,
    keeps_type=True,
    family="linear",
    elementwise=True,
    hands_on=True,
)
class Real:
    """The real part; transposed, a number without imaginary part."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return [_part(op, tangents[0], build.real)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return [_whole(op, _real_one(op, cts[0]), None)]


@rule(
    "stablehlo.imag",
    linear=jointly,
    keeps_type=True,
    family="linear",
    elementwise=True,
    hands_on=True,
)
class Imag:
    """The imaginary part; transposed, times -i."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return [_part(op, tangents[0], build.imag)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return [_whole(op, None, neg(_real_one(op, cts[0])))]


def _part(op: Op, t: Value, part: Callable[[Value], Value]) -> Value | None:
    """Take the real or imaginary part of a tangent, which StableHLO lets be real as well."""
    if build.info(t.type).kind == "c":
        return part(t)
    return t if part is build.real else None


def _real_one(op: Op, ct: Any) -> Value:
    """Convert the cotangent of a real result to a real one if it came as a complex one."""
    is_complex = build.info(ct.type).kind == "c" and build.info(op.result_type).kind == "f"
    return build.converted(ct, op.result_type) if is_complex else ct


def _whole(op: Op, re: Value | None, im: Value | None) -> Value | None:
    if build.info(op.operands[0].type).kind == "c":
        return build.complex_(re, im)
    return re


@rule(
    "stablehlo.complex",
    linear=jointly,
    keeps_type=True,
    family="linear",
    elementwise=True,
    hands_on=True,
)
class Complex:
    """re + i im; transposed, (re, -im): without a conjugate, as in JAX."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return [build.complex_(*tangents)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        (ct,) = cts
        return [
            build.real(ct) if op.active[0] else None,
            neg(build.imag(ct)) if op.active[1] else None,
        ]


@rule("stablehlo.convert", linear=jointly, family="linear", elementwise=True, hands_on=True)
class Convert:
    """Between float and complex types; to integers the derivative is zero."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        result = build.info(op.result_type)
        if result.kind not in "fc":
            return [None]
        return [build.convert(tangents[0], result.element)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return [build.converted(cts[0], op.operands[0].type)]


def reduce_precision(op: Op, cts: Tangents) -> list[Value | None]:
    """Round the cotangent as the primal is rounded."""
    return [build.clone(op.operation, [cts[0]]).result]


linear("stablehlo.reduce_precision", reduce_precision, elementwise=True)

# ------------------------------------------------------------------------- zero derivatives
nondifferentiable(
    "piecewise constant",
    *(f"stablehlo.{name}" for name in "ceil floor round_nearest_afz round_nearest_even".split()),
    module=__name__,
)
nondifferentiable(
    "the result is boolean or integer",
    *(f"stablehlo.{name}" for name in "compare is_finite get_dimension_size".split()),
    module=__name__,
)
nondifferentiable(
    "acts on integers",
    *(
        f"stablehlo.{name}"
        for name in (
            "and or xor not popcnt count_leading_zeros shift_left shift_right_arithmetic "
            "shift_right_logical rng_bit_generator"
        ).split()
    ),
    module=__name__,
)
nondifferentiable(
    "has no operand that varies",
    *(
        f"stablehlo.{name}"
        for name in (
            "constant iota dynamic_iota after_all create_token partition_id replica_id"
        ).split()
    ),
    module=__name__,
)

# --------------------------------------------------------------------------------- batches
_WITH_SCALARS = "stablehlo.select", "stablehlo.clamp"
batch_alike("stablehlo.bitcast_convert")
batch_alike(
    *(
        name
        for name in sorted(ELEMENTWISE)
        if name.startswith("stablehlo.") and name not in (*BATCHES, *_WITH_SCALARS)
    )
)


@batch(*_WITH_SCALARS)
def _batch_with_scalars(op: MappedOp) -> list[Value]:
    """Batch `select` and `clamp`, whose predicate or bounds may be one scalar for a whole array."""
    whole = build.shape_of(op.results[0])
    return op.again([_for_whole(op, i, whole) for i in range(3)])


def _for_whole(op: MappedOp, index: int, whole: tuple[int, ...]) -> Value:
    v = op.values[index]
    if op.shape(index) == whole:
        return op.operand(index)
    return along(v, whole) if op.batched[index] else v
