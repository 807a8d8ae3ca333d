"""Dynamic forms of ops: with static result types, they are the static ops they stand for.

What a dynamic op takes as an operand must then be a constant, where the result type does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.rules.derived import Expand, expanded
from pullback.rules.indexing import unsupported
from pullback.rules.registry import Mask, Op, Rule, only_in, register

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


def result_shape(op: Op) -> tuple[int, ...]:
    """The shape of the result, which must be static."""
    shape = build.info(op.result_type).shape
    if -1 in shape or any(-1 in build.info(v.type).shape for v in op.operands):
        raise unsupported(
            op, "with a dynamic shape", "refine the shapes first: stablehlo-refine-shapes"
        )
    return shape


def _static(
    name: str, expand: Callable[[Op, Operands], Value], linear: Callable[[Mask], bool]
) -> None:
    """An op with the derivatives of the static op that `expand` gives."""

    def one(op: Op, operands: Operands) -> list[Value]:
        return [expand(op, operands)]

    one.__module__ = __name__
    rule: Expand = one
    register(Rule(name, *expanded(rule), linear, __name__, "dynamic", keeps_type=True))


def _reshape(op: Op, operands: Operands) -> Value:
    return build.emit1("stablehlo.reshape", op.result_type, [_checked(op, operands)])


def _broadcast_in_dim(op: Op, operands: Operands) -> Value:
    attributes = {"broadcast_dimensions": op.attributes["broadcast_dimensions"]}
    x = _checked(op, operands)
    return build.emit1("stablehlo.broadcast_in_dim", op.result_type, [x], attributes)


def _pad(op: Op, operands: Operands) -> Value:
    low, high, interior = constants(op, 2, 3, 4)
    return build.pad(_checked(op, operands), operands[1], low, high, interior)


def _slice(op: Op, operands: Operands) -> Value:
    start, limit, strides = constants(op, 1, 2, 3)
    return build.slice_(_checked(op, operands), start, limit, strides)


def _convolution(op: Op, operands: Operands) -> Value:
    x = _checked(op, operands)
    (padding,) = constants(op, 2)
    pairs = [[a, b] for a, b in zip(padding[::2], padding[1::2], strict=True)]
    literal = f"dense<{pairs or ''}> : tensor<{len(pairs)}x2xi64>"
    named: list[Any] = [op.attributes[i] for i in range(len(op.attributes))]
    attributes = {n.name: n.attr for n in named} | {"padding": build.attr(literal)}
    return build.emit1("stablehlo.convolution", op.result_type, [x, operands[1]], attributes)


def _checked(op: Op, operands: Operands) -> Value:
    """The first operand, once the shapes are known to be static."""
    result_shape(op)
    return operands[0]


def _separately(active: Mask) -> bool:
    return sum(active) <= 1


_static("stablehlo.dynamic_reshape", _reshape, only_in(0))
_static("stablehlo.dynamic_broadcast_in_dim", _broadcast_in_dim, only_in(0))
_static("stablehlo.dynamic_pad", _pad, only_in(0, 1))
_static("stablehlo.real_dynamic_slice", _slice, only_in(0))
_static("stablehlo.dynamic_conv", _convolution, _separately)
