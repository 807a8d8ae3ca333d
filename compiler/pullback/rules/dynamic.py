"""Dynamic forms of ops: with static result types, they are the static ops they stand for.

What a dynamic op takes as an operand must then be a constant, where the result type does not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.rules.derived import by_expansion
from pullback.rules.registry import Op, only_in, separately, unsupported

Operands = Sequence[Value]


def constants(op: Op, *positions: int) -> list[list[int]]:
    """The values of operands that must be constants."""
    return [_constant(op, i) for i in positions]


def _constant(op: Op, index: int) -> list[int]:
    v = op.operands[index]
    if isinstance(v, ir.BlockArgument) or v.owner.name != "stablehlo.constant":
        raise unsupported(
            op, f"whose operand {index} is not a constant", "make the sizes of this step static"
        )
    values = np.asarray(ir.DenseElementsAttr(v.owner.attributes["value"]))
    return [int(n) for n in np.broadcast_to(values, build.shape(v)).ravel()]


def _reshape(op: Op, operands: Operands) -> Value:
    return build.emit1("stablehlo.reshape", op.result_type, operands[:1])


def _broadcast_in_dim(op: Op, operands: Operands) -> Value:
    attributes = {"broadcast_dimensions": op.attributes["broadcast_dimensions"]}
    return build.emit1("stablehlo.broadcast_in_dim", op.result_type, operands[:1], attributes)


def _pad(op: Op, operands: Operands) -> Value:
    low, high, interior = constants(op, 2, 3, 4)
    return build.pad(operands[0], operands[1], low, high, interior)


def _slice(op: Op, operands: Operands) -> Value:
    start, limit, strides = constants(op, 1, 2, 3)
    return build.slice_(operands[0], start, limit, strides)


def _convolution(op: Op, operands: Operands) -> Value:
    (padding,) = constants(op, 2)
    pairs = [[a, b] for a, b in zip(padding[::2], padding[1::2], strict=True)]
    literal = f"dense<{pairs or ''}> : tensor<{len(pairs)}x2xi64>"
    named: list[Any] = [op.attributes[i] for i in range(len(op.attributes))]
    attributes = {n.name: n.attr for n in named} | {"padding": build.attr(literal)}
    return build.emit1("stablehlo.convolution", op.result_type, operands[:2], attributes)


for _name, _expand, _linear in (
    ("dynamic_reshape", _reshape, only_in(0)),
    ("dynamic_broadcast_in_dim", _broadcast_in_dim, only_in(0)),
    ("dynamic_pad", _pad, only_in(0, 1)),
    ("real_dynamic_slice", _slice, only_in(0)),
    ("dynamic_conv", _convolution, separately),
):
    by_expansion(f"stablehlo.{_name}", _expand, linear=_linear, family="dynamic")
