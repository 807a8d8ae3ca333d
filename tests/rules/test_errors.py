"""What a rule cannot do is an error with words, never a wrong number."""

from __future__ import annotations

import pytest

from pullback import _jax
from pullback._errors import DuplicateRuleError, MissingRuleError, NotLinearError
from pullback._jax import ir
from pullback.passes.manager import run_pipeline
from pullback.rules import registry


def derive(body: str, pipeline: str, signature: str = "%x: tensor<4xf32>") -> None:
    text = f"func.func @main({signature}) -> tensor<4xf32> {{\n{body}\n}}"
    run_pipeline(ir.Module.parse(text, _jax.context()), f"builtin.module({pipeline})")


BITCAST = """
  %0 = stablehlo.bitcast_convert %x : (tensor<4xf32>) -> tensor<4xi32>
  %1 = stablehlo.bitcast_convert %0 : (tensor<4xi32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>"""

RNG = """
  %n = stablehlo.constant dense<4> : tensor<1xi64>
  %low = stablehlo.reshape %s : (tensor<f32>) -> tensor<f32>
  %0 = stablehlo.rng %low, %s, %n, distribution = UNIFORM
    : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
  return %0 : tensor<4xf32>"""

POLYGAMMA = """
  %0 = chlo.polygamma %x, %x : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>"""

BAD_BODY = """
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<4xf32>) -> tensor<4x2xf32>
  %1 = stablehlo.reduce(%0 init: %init) across dimensions = [1]
    : (tensor<4x2xf32>, tensor<f32>) -> tensor<4xf32>
    reducer(%a: tensor<f32>, %b: tensor<f32>) {
      %2 = stablehlo.custom_call @mystery(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }
  return %1 : tensor<4xf32>"""

MAXIMUM = """
  %init = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<4xf32>) -> tensor<4x2xf32>
  %1 = stablehlo.reduce(%0 init: %init) applies stablehlo.maximum across dimensions = [1]
    : (tensor<4x2xf32>, tensor<f32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>"""


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize(
    ("body", "signature", "words"),
    [
        (BITCAST, "%x: tensor<4xf32>", "no derivative rule for `stablehlo.bitcast_convert`"),
        (RNG, "%s: tensor<f32>", "no derivative rule for `stablehlo.rng`"),
        (POLYGAMMA, "%x: tensor<4xf32>", "rule for `chlo.polygamma` in its first operand"),
        (BAD_BODY, "%x: tensor<4xf32>", "`stablehlo.custom_call` in the body of a reduction"),
    ],
)
def test_missing(mode: str, body: str, signature: str, words: str) -> None:
    with pytest.raises(MissingRuleError, match=words):
        derive(body, mode, signature)


def test_extrema_are_not_linear() -> None:
    with pytest.raises(NotLinearError, match=r"`stablehlo.reduce` is not linear"):
        derive(MAXIMUM, "transpose")


def test_integers_stop_derivatives() -> None:
    """A float turned into an integer and back has derivative zero, as in JAX."""
    derive(
        """
  %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi32>
  %1 = stablehlo.convert %0 : (tensor<4xi32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>""",
        "vjp",
    )


def test_second_rule_for_an_op() -> None:
    registry.load_all()
    with pytest.raises(DuplicateRuleError, match=r"two rules for `stablehlo.sine`"):
        registry.nondifferentiable("because", "stablehlo.sine", module=__name__)
