"""Records of batch normalization, against jnp formulas."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.rules.record import Case, real

SHAPES = {
    "x": "tensor<4x3x2xf64>",
    "feature": "tensor<3xf64>",
}


def text(name: str, operands: str, results: str) -> str:
    """A module around one op; x and f are the types of operands and results."""
    types = [SHAPES["x" if letter == "x" else "feature"] for letter in operands]
    outs = ", ".join(SHAPES["x" if letter == "x" else "feature"] for letter in results)
    arguments = ", ".join(f"%a{i}: {type}" for i, type in enumerate(types))
    names = ", ".join(f"%a{i}" for i in range(len(types)))
    returned = ", ".join(f"%r#{i}" for i in range(len(results)))
    return f"""
func.func public @main({arguments}) -> ({outs}) {{
  %r:{len(results)} = "stablehlo.batch_norm_{name}"({names})
    {{epsilon = 0.125 : f32, feature_index = 1 : i64}} : ({", ".join(types)}) -> ({outs})
  return {returned} : {outs}
}}
"""


def along(v: Any) -> Any:
    return v[None, :, None]


def inference(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    return (x - along(mean)) * along(scale / jnp.sqrt(variance + 0.125)) + along(offset)


def training(x: Any, scale: Any, offset: Any) -> Any:
    mean, variance = jnp.mean(x, (0, 2)), jnp.var(x, (0, 2))
    return inference(x, scale, offset, mean, variance), mean, variance


def gradient(x: Any, scale: Any, mean: Any, variance: Any, g: Any) -> Any:
    """The transpose of training at x; mean and variance are held apart as the op does."""
    r = 1 / jnp.sqrt(variance + 0.125)
    h = (x - along(mean)) * along(r)
    d_offset, d_scale = jnp.sum(g, (0, 2)), jnp.sum(g * h, (0, 2))
    return along(scale * r) * (g - (along(d_offset) + h * along(d_scale)) / 8), d_scale, d_offset


def gradient_at_own_mean(x: Any, scale: Any, g: Any) -> Any:
    zero = jnp.zeros(3, x.dtype)
    return jax.vjp(lambda *a: training(*a)[0], x, scale, zero)[1](g)


AT_OWN_MEAN = """
func.func public @main(%x: tensor<4x3x2xf64>, %scale: tensor<3xf64>, %g: tensor<4x3x2xf64>)
    -> (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>) {
  %zero = stablehlo.constant dense<0.0> : tensor<3xf64>
  %y:3 = "stablehlo.batch_norm_training"(%x, %scale, %zero)
    {epsilon = 0.125 : f32, feature_index = 1 : i64}
    : (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>)
    -> (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>)
  %r:3 = "stablehlo.batch_norm_grad"(%x, %scale, %y#1, %y#2, %g)
    {epsilon = 0.125 : f32, feature_index = 1 : i64}
    : (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<4x3x2xf64>)
    -> (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>)
  return %r#0, %r#1, %r#2 : tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>
}
"""

X, FEATURE = real(4, 3, 2), real(3)
VARIANCE = real(3, low=0.5, high=2.0)

CASES = [
    Case(
        "stablehlo.batch_norm_training",
        text("training", "xff", "xff"),
        [X, FEATURE, FEATURE],
        reference=training,
    ),
    Case(
        "stablehlo.batch_norm_inference",
        text("inference", "xffff", "x"),
        [X, FEATURE, FEATURE, FEATURE, VARIANCE],
        reference=inference,
    ),
    Case(
        "stablehlo.batch_norm_grad",
        text("grad", "xfffx", "xff"),
        [X, FEATURE, FEATURE, VARIANCE, X],
        reference=gradient,
    ),
    Case(
        "stablehlo.batch_norm_grad",
        AT_OWN_MEAN,
        [X, FEATURE, X],
        "at_own_mean",
        reference=gradient_at_own_mean,
    ),
    Case(
        "stablehlo.batch_norm_training",
        text("training", "xff", "xff"),
        [np.ones((4, 3, 2)), FEATURE, FEATURE],
        "constant_input",
        reference=training,
    ),
]
