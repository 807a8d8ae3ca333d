"""What a rule cannot do is an error with words, never a wrong number."""

from __future__ import annotations

import pytest

from pullback import _jax
from pullback._jax import ir, sdy
from pullback.autodiff import batch_rules, registry
from pullback.errors import (
    DuplicateRuleError,
    MissingRuleError,
    NotDifferentiableError,
    NotLinearError,
    RuleResultError,
)
from pullback.passes.manager import run_pipeline

pytestmark = pytest.mark.whole


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


def test_a_tuple_of_another_function_is_to_be_inlined_first() -> None:
    pair = "tuple<tensor<4xf32>, tensor<4xf32>>"
    body = f"""
  %0 = call @g(%x) : (tensor<4xf32>) -> {pair}
  %1 = stablehlo.get_tuple_element %0[1] : ({pair}) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}}
func.func private @g(%x: tensor<4xf32>) -> {pair} {{
  %0 = stablehlo.tuple %x, %x : {pair}
  return %0 : {pair}"""
    with pytest.raises(MissingRuleError, match="a tuple from another function") as caught:
        derive(body, "vjp")
    assert "inline-calls" in str(caught.value.do)
    derive(body, "inline-calls,vjp")


def test_a_custom_call_says_what_to_do_without_jax() -> None:
    body = """
  %0 = stablehlo.custom_call @mystery(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>"""
    with pytest.raises(MissingRuleError, match="@mystery") as caught:
        derive(body, "vjp")
    assert "pullback.custom_jvp_call with rules" in str(caught.value.do)


@pytest.mark.parametrize("op", ["math.sin", "mhlo.sine"])
def test_an_op_of_another_dialect_is_to_be_lowered_first(op: str) -> None:
    body = f"""
  %0 = "{op}"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>"""
    with pytest.raises(MissingRuleError, match=f"no derivative rule for `{op}`") as caught:
        derive(body, "vjp")
    assert "lower it to StableHLO" in str(caught.value.do)


@pytest.mark.skipif(not hasattr(sdy, "ReductionOp"), reason="sums alone are left undone there")
@pytest.mark.parametrize("mode", ["jvp", "vjp"])
def test_a_maximum_over_devices_left_undone_is_refused(mode: str) -> None:
    body = """
  %0 = sdy.manual_computation(%x) in_shardings=[<mesh<["i"=2]>, [{}]>]
    out_shardings=[<mesh<["i"=2]>, [{}], unreduced=max{"i"}>] manual_axes={"i"}
    (%y: tensor<4xf32>) { sdy.return %y : tensor<4xf32> } : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>"""
    with pytest.raises(NotDifferentiableError, match="leaves a max over devices undone"):
        derive(body, mode)


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
    """The error names both modules, whichever helpers they use."""
    registry.load_all()
    for name, first in (("sine", "elementwise"), ("floor", "elementwise"), ("reshape", "shape")):
        for enter in (
            lambda op: registry.nondifferentiable("because", op, module=__name__),
            lambda op: registry.elementwise(op, lambda op, t: t),
            lambda op: registry.linear(op, lambda op, cts: cts),
        ):
            with pytest.raises(DuplicateRuleError, match=f"two rules for `stablehlo.{name}`") as e:
                enter(f"stablehlo.{name}")
            assert e.value.where == f"pullback.rules.{first} and {__name__}"


def test_a_class_of_rules_has_both_modes() -> None:
    class Forward:
        @staticmethod
        def jvp(op, tangents):
            return tangents

    with pytest.raises(TypeError, match=r"rule for `acme\.forward` .* Forward has no vjp"):
        registry.rule("acme.forward")(Forward)
    assert "acme.forward" not in registry.RULES


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize("formulas", [2, 3])
def test_formulas_for_other_operands_than_there_are(mode: str, formulas: int) -> None:
    registry.load_all()
    registry.elementwise("acme.kind", *[lambda op, t: t] * formulas)
    try:
        words = f"in {__name__} has a formula for each of {formulas} operands, and the op has 1"
        with pytest.raises(RuleResultError, match=words):
            derive(COMPOSITE, mode)
    finally:
        del registry.RULES["acme.kind"], batch_rules.BATCHES["acme.kind"]


COMPOSITE = """
  %0 = stablehlo.composite "acme.kind" %x {decomposition = @f} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>"""


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (3, "returned no list of (co)?tangents, but int"),
        (None, "returned no list of (co)?tangents, but NoneType"),
        ([], "returned 0 (co)?tangents instead of 1"),
        ([3.0], r"returned 3\.0 for a (co)?tangent"),
    ],
)
def test_what_a_rule_returns(monkeypatch, mode: str, returned: object, words: str) -> None:
    registry.load_all()

    def method(op: object, values: object) -> object:
        return returned

    rule = registry.Rule("acme.kind", method, method, registry.never, "acme", "own")
    monkeypatch.setitem(registry.RULES, "acme.kind", rule)
    with pytest.raises(RuleResultError, match=f"the rule for `acme.kind` in acme {words}"):
        derive(COMPOSITE, mode)
