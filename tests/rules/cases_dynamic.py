"""Records of dynamic ops with static result types, and of dimensions with a bound.

dynamic_conv is in test_refusals.py.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.rules.record import Arg, Case, ints, real, tensor


def text(arguments: str, constants: str, call: str, result: str) -> str:
    """A module that applies one op to arguments and constants."""
    return f"""
func.func public @main({arguments}) -> {result} {{
  {constants}
  %0 = {call} -> {result}
  return %0 : {result}
}}
"""


RESHAPE = text(
    "%x: tensor<2x3xf64>",
    "%shape = stablehlo.constant dense<[3, 2]> : tensor<2xi32>",
    "stablehlo.dynamic_reshape %x, %shape : (tensor<2x3xf64>, tensor<2xi32>)",
    "tensor<3x2xf64>",
)
BROADCAST = text(
    "%x: tensor<1x3xf64>",
    "%shape = stablehlo.constant dense<[3, 4, 2]> : tensor<3xi32>",
    "stablehlo.dynamic_broadcast_in_dim %x, %shape, dims = [2, 0] "
    ": (tensor<1x3xf64>, tensor<3xi32>)",
    "tensor<3x4x2xf64>",
)
PAD = text(
    "%x: tensor<2x3xf64>, %value: tensor<f64>",
    """%low = stablehlo.constant dense<[1, -1]> : tensor<2xi32>
  %high = stablehlo.constant dense<[0, 2]> : tensor<2xi32>
  %interior = stablehlo.constant dense<[2, 0]> : tensor<2xi32>""",
    "stablehlo.dynamic_pad %x, %value, %low, %high, %interior "
    ": (tensor<2x3xf64>, tensor<f64>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)",
    "tensor<5x4xf64>",
)
SLICE = text(
    "%x: tensor<4x5xf64>",
    """%start = stablehlo.constant dense<[1, 0]> : tensor<2xi32>
  %limit = stablehlo.constant dense<[4, 5]> : tensor<2xi32>
  %strides = stablehlo.constant dense<[1, 2]> : tensor<2xi32>""",
    "stablehlo.real_dynamic_slice %x, %start, %limit, %strides "
    ": (tensor<4x5xf64>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)",
    "tensor<3x3xf64>",
)


def broadcast(x: Any) -> Any:
    return jnp.broadcast_to(x.T[:, None, :], (3, 4, 2))


SET_SIZE = "stablehlo.set_dimension_size"
VECTOR = "tensor<?xf64, #stablehlo.bounds<5>>"
ROWS = "tensor<?x3xf64, #stablehlo.bounds<4, ?>>"
COLUMNS = "tensor<4x?xf64, #stablehlo.bounds<?, 3>>"
BOTH = "tensor<?x?xf64, #stablehlo.bounds<4, 3>>"


def bounded(x: Arg, steps: str, result: str, label: str, reference: Any, **options: Any) -> Case:
    """Steps from %x to %out; %n is 2 and %m is 9."""
    body = f"""
func.func public @main(%x: {tensor(x.shape)}, %n: tensor<i32>, %m: tensor<i32>) -> {result} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  {steps}
  return %out : {result}
}}
"""
    return Case(SET_SIZE, body, [x, ints(2), ints(9)], label, reference, **options)


def set_size(result: str, x: str, size: str, dimension: int, before: str, after: str) -> str:
    types = f"({before}, tensor<i32>) -> {after}"
    return f"{result} = {SET_SIZE} {x}, {size}, dim = {dimension} : {types}\n"


def total(result: str, x: str, dimensions: str, before: str, after: str) -> str:
    return (
        f"{result} = stablehlo.reduce({x} init: %zero) applies stablehlo.add "
        f"across dimensions = [{dimensions}] : ({before}, tensor<f64>) -> {after}\n"
    )


def times_sine(result: str, x: str, type: str) -> str:
    """%result = x sin(x)."""
    return (
        f"%sine_{result} = stablehlo.sine {x} : {type}\n"
        f"%{result} = stablehlo.multiply {x}, %sine_{result} : {type}\n"
    )


def kept(x: Any, n: int, axis: int = 0) -> Any:
    """x sin(x) at indices below n, zeros elsewhere."""
    index = lax.broadcasted_iota(np.int32, x.shape, axis)
    return jnp.where(index < n, x * jnp.sin(x), 0.0)


WHOLE = tensor((5,))
BACK = (
    set_size("%a", "%x", "%n", 0, WHOLE, VECTOR)
    + times_sine("b", "%a", VECTOR)
    + "%five = stablehlo.constant dense<5> : tensor<i32>\n"
    + set_size("%c", "%b", "%five", 0, VECTOR, WHOLE)
)

SET_DIMENSION_SIZES = [
    bounded(
        real(5),
        set_size("%a", "%x", size, 0, WHOLE, VECTOR)
        + times_sine("b", "%a", VECTOR)
        + total("%out", "%b", "0", VECTOR, tensor(())),
        tensor(()),
        label,
        reference,
    )
    for size, label, reference in (
        ("%n", "vector", lambda x, n, m: kept(x, 2).sum()),
        ("%m", "all-of-it", lambda x, n, m: kept(x, 5).sum()),
    )
]
SET_DIMENSION_SIZES += [
    bounded(
        real(4, 3),
        set_size("%a", "%x", "%n", 1, tensor((4, 3)), COLUMNS)
        + times_sine("b", "%a", COLUMNS)
        + total("%out", "%b", "1", COLUMNS, tensor((4,))),
        tensor((4,)),
        "columns",
        lambda x, n, m: kept(x, 2, 1).sum(1),
    ),
    bounded(
        real(4, 3),
        set_size("%a", "%x", "%n", 0, tensor((4, 3)), ROWS)
        + set_size("%b", "%a", "%n", 1, ROWS, BOTH)
        + times_sine("c", "%b", BOTH)
        + total("%d", "%c", "0", BOTH, "tensor<?xf64, #stablehlo.bounds<3>>")
        + times_sine("e", "%d", "tensor<?xf64, #stablehlo.bounds<3>>")
        + total("%out", "%e", "0", "tensor<?xf64, #stablehlo.bounds<3>>", tensor(())),
        tensor(()),
        "rows-and-columns",
        lambda x, n, m: kept(kept(x, 2).sum(0), 2).sum(),
    ),
    bounded(
        real(5),
        BACK
        + """%i = stablehlo.iota dim = 0 : tensor<5xi32>
  %size = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<i32>) -> tensor<5xi32>
  %inside = stablehlo.compare LT, %i, %size : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
  %zeros = stablehlo.constant dense<0.0> : tensor<5xf64>
  %out = stablehlo.select %inside, %c, %zeros : tensor<5xi1>, tensor<5xf64>""",
        WHOLE,
        "back",
        lambda x, n, m: kept(x, 2),
    ),
    bounded(
        real(5),
        BACK + times_sine("out", "%c", WHOLE),
        WHOLE,
        "beyond-the-size",  # XLA shows what was there, but it is no value
        lambda x, n, m: (y := kept(x, 2)) * jnp.sin(y),
        numeric=False,
    ),
    bounded(
        real(5),
        set_size("%a", "%x", "%n", 0, WHOLE, VECTOR)
        + set_size("%b", "%a", "%m", 0, VECTOR, VECTOR)
        + times_sine("c", "%b", VECTOR)
        + total("%out", "%c", "0", VECTOR, tensor(())),
        tensor(()),
        "grown-again",
        lambda x, n, m: kept(x, 2).sum(),
        numeric=False,
        second=False,
    ),
    bounded(
        real(0),
        set_size("%a", "%x", "%n", 0, tensor((0,)), "tensor<?xf64, #stablehlo.bounds<0>>")
        + total("%out", "%a", "0", "tensor<?xf64, #stablehlo.bounds<0>>", tensor(())),
        tensor(()),
        "empty",
        lambda x, n, m: x.sum(),
    ),
]

CASES = [
    Case("stablehlo.dynamic_reshape", RESHAPE, [real(2, 3)], reference=lambda x: x.reshape(3, 2)),
    Case("stablehlo.dynamic_broadcast_in_dim", BROADCAST, [real(1, 3)], reference=broadcast),
    Case(
        "stablehlo.dynamic_pad",
        PAD,
        [real(2, 3), real()],
        reference=lambda x, value: lax.pad(x, value, ((1, 0, 2), (-1, 2, 0))),
    ),
    Case(
        "stablehlo.real_dynamic_slice",
        SLICE,
        [real(4, 5)],
        reference=lambda x: x[1:4, ::2],
    ),
    *SET_DIMENSION_SIZES,
]
