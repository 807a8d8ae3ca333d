"""Ops that act on each element by itself. One line is one op: factors for each operand.

`lambda op, t: …` is `t` times the partial derivative; it serves tangents and cotangents alike.
Each follows the rule of the JAX primitive that lowers to the op, ties and edge cases included.
"""

from __future__ import annotations

from pullback.dialect.build import (
    Value,
    add,
    compare,
    convert,
    cos,
    div,
    info,
    mul,
    neg,
    select,
    sin,
    square,
    sub,
)
from pullback.rules.registry import Op, elementwise, jointly, only_in, separately


def same(op: Op, t: Value) -> Value:
    return t


def minus(op: Op, t: Value) -> Value:
    return neg(t)


# ------------------------------------------------------------------------------ arithmetic
elementwise("stablehlo.add", same, same, linear=jointly)
elementwise("stablehlo.subtract", same, minus, linear=jointly)
elementwise("stablehlo.negate", minus, linear=jointly)
elementwise(
    "stablehlo.multiply",
    lambda op, t: mul(t, op.rhs),
    lambda op, t: mul(op.lhs, t),
    linear=separately,
)
elementwise(
    "stablehlo.divide",
    lambda op, t: div(t, op.rhs),
    lambda op, t: neg(mul(t, div(op.result, op.rhs))),
    linear=only_in(0),
)

# ---------------------------------------------------------------------- powers, exponentials
elementwise("stablehlo.exponential", lambda op, t: mul(t, op.result))
elementwise("stablehlo.log", lambda op, t: div(t, op.x))
elementwise("stablehlo.sqrt", lambda op, t: div(mul(t, 0.5), op.result))
elementwise("stablehlo.rsqrt", lambda op, t: mul(t, mul(-0.5, div(op.result, op.x))))

# ---------------------------------------------------------------------------- trigonometry
elementwise("stablehlo.sine", lambda op, t: mul(t, cos(op.x)))
elementwise("stablehlo.cosine", lambda op, t: mul(t, neg(sin(op.x))))
elementwise("stablehlo.tanh", lambda op, t: mul(t, sub(1.0, square(op.result))))


# ------------------------------------------------------------------------------- selection
def _tie(op: Op, t: Value, mine: Value, other: Value) -> Value:
    """1 where this operand is the result, 1/2 where both are, as in JAX."""
    wins = compare("EQ", mine, op.result)
    both = compare("EQ", other, op.result)
    share = select(both, 0.5 * _ones(mine), _ones(mine))
    return mul(t, select(wins, share, None))


def _ones(v: Value) -> Value:
    from pullback.dialect.build import full_like

    return full_like(v, 1)


elementwise(
    "stablehlo.select",
    None,
    lambda op, t: select(op.operand(0), t, None),
    lambda op, t: select(op.operand(0), None, t),
    linear=jointly,
)
__all__ = ["add", "convert", "info"]
