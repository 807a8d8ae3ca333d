"""Records of dynamic ops with static result types; dynamic_conv is in test_refusals.py."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.rules.record import Case, real


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
]
