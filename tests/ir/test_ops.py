"""Views over the derivative ops, and the builders that create them."""

from __future__ import annotations

import math

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.ir import build, ops
from pullback.ir.verify import verify
from pullback.tools.module_io import parse_module

SOURCE = """
func.func @main(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<complex<f64>>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {rule = "f#0", jvp = @f.jvp, jvp.01 = @f.jvp.01, transpose.10 = @f.t.10},
    decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<complex<f64>>) -> tensor<f32>
  %1 = stablehlo.composite "pullback.custom_vjp_call" %0 {
    composite_attributes = {fwd = @g.fwd, bwd = @g.bwd}, decomposition = @g
  } : (tensor<f32>) -> tensor<f32>
  %2 = stablehlo.composite "pullback.linear_call" %x, %1 {
    composite_attributes = {num_residuals = 1 : i64, transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %3 = stablehlo.composite "chlo.other" %2 {decomposition = @g} : (tensor<f32>) -> tensor<f32>
  %4 = stablehlo.negate %3 : tensor<f32>
  return %4 : tensor<f32>
}
func.func private @f(tensor<f32>, tensor<i32>, tensor<complex<f64>>) -> tensor<f32>
func.func private @f.jvp(
    tensor<f32>, tensor<i32>, tensor<complex<f64>>, tensor<f32>, tensor<complex<f64>>
) -> (tensor<f32>, tensor<f32>)
func.func private @f.jvp.01(
    tensor<f32>, tensor<i32>, tensor<complex<f64>>, tensor<complex<f64>>
) -> (tensor<f32>, tensor<f32>)
func.func private @f.t.10(tensor<i32>, tensor<complex<f64>>, tensor<f32>) -> tensor<f32>
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @g.fwd(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  return %x, %x : tensor<f32>, tensor<f32>
}
func.func private @g.bwd(%r: tensor<f32>, %ct: tensor<f32>) -> tensor<f32> {
  return %ct : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> tensor<f32>
"""


@pytest.fixture
def module() -> ir.Module:
    return ir.Module.parse(SOURCE, _jax.context())


def test_views(module: ir.Module) -> None:
    jvp, vjp, linear = ops.walk_calls(module)
    assert isinstance(jvp, ops.CustomJVPCall)
    assert (jvp.decomposition, jvp.rule_key, jvp.mask) == ("f", "f#0", "11")
    assert [jvp.jvp(mask) for mask in ("11", "01", "10")] == ["f.jvp", "f.jvp.01", None]
    assert (jvp.transpose("10"), jvp.transpose("11")) == ("f.t.10", None)
    assert isinstance(vjp, ops.CustomVJPCall)
    assert vjp.pairs() == [("g.fwd", "g.bwd", vjp.mask, "1")]
    assert (vjp.jvp(vjp.mask), vjp.rule_key) == (None, None)
    assert isinstance(linear, ops.LinearCall)
    assert (linear.decomposition, linear.transpose, linear.num_residuals) == ("l", "l.t", 1)
    assert [len(linear.residuals), len(linear.linear_operands)] == [1, 1]


def test_a_backward_rule_for_other_types_is_of_the_pair_for_the_same_results(module) -> None:
    _, vjp, _ = ops.walk_calls(module)
    vjp.update(**{"bwd[f64]": "g.bwd"})
    found = [vjp.backward_for("1", ["f64"], results) for results in ("", "1", "0")]
    assert found == ["g.bwd", "g.bwd", None]
    vjp.update(**{"bwd[f64].1.0": "g.wide"})
    assert vjp.backward_for("1", ["f64"], "0") == "g.wide"


def test_other_ops_have_no_view(module: ir.Module) -> None:
    block = module.body.operations[0].regions[0].blocks[0]
    assert [ops.view(op) is None for op in block.operations] == [False] * 3 + [True] * 3


def test_update_sets_and_removes(module: ir.Module) -> None:
    call = next(ops.walk_calls(module))
    call.update(rule=None, **{"jvp.10": "f.jvp.10", "jvp.01": None})
    assert call.rule_key is None
    assert call.symbols == {"jvp": "f.jvp", "jvp.10": "f.jvp.10", "transpose.10": "f.t.10"}
    assert "jvp.10 = @f.jvp.10" in str(call.op)


def test_the_builder_makes_what_the_views_read(module: ir.Module) -> None:
    block = module.body.operations[0].regions[0].blocks[0]
    x, f32 = block.arguments[0], block.arguments[0].type
    place = ir.InsertionPoint(block.operations[0])
    rules = {"rule": "k", "jvp": None, "transpose.1": "g"}
    with _jax.context(), build.inserting(place, ir.Location.unknown(x.context)):
        jvp = ops.call(ops.CustomJVPCall, "g", [x], [f32], **rules)
        vjp = ops.call(ops.CustomVJPCall, "g", [x], [f32], fwd="g.fwd", bwd="g.bwd")
        linear = ops.call(ops.LinearCall, "l", [x, x], [f32], num_residuals=1, transpose="l.t")
    verify(module)
    assert ops.view(jvp).rule_key == "k"
    assert ops.view(jvp).transpose("1") == "g"
    assert ops.view(vjp).symbols == {"fwd": "g.fwd", "bwd": "g.bwd"}
    assert ops.view(linear).num_residuals == 1


def test_symbol_references_survive_a_portable_artifact(module: ir.Module) -> None:
    before = str(module)
    version = _jax.stablehlo.get_current_version()
    artifact = _jax.stablehlo.serialize_portable_artifact(module, version)
    raw = _jax.stablehlo.deserialize_portable_artifact(_jax.context(), artifact)
    assert 'jvp = "f.jvp"' in str(raw)
    for _ in range(2):
        ops.restore_symbol_refs(ops.walk_composites(raw))
        assert str(raw) == before
    assert str(parse_module(artifact)) == before
    verify(raw)


@pytest.mark.parametrize(
    ("text", "inexact"),
    [
        ("tensor<f32>", True),
        ("tensor<4x?xbf16>", True),
        ("tensor<f8E4M3FN>", True),
        ("tensor<complex<f32>>", True),
        ("tensor<i32>", False),
        ("tensor<i1>", False),
        ("tensor<ui8>", False),
        ("!stablehlo.token", False),
    ],
)
def test_inexact(text: str, inexact: bool) -> None:
    assert build.inexact(ir.Type.parse(text, _jax.context())) is inexact


@pytest.mark.parametrize(
    ("element", "value", "same"),
    [
        ("f8E5M2", math.inf, "0x7C"),
        ("f8E5M2", -math.inf, "0xFC"),
        ("f8E4M3FN", math.inf, "448.0"),
        ("f8E4M3FN", -math.inf, "-448.0"),
        ("f8E4M3FN", 1e9, "0x7F"),
        ("f8E4M3FN", -0.5, "-0.5"),
        ("f8E8M0FNU", -0.5, "0xFF"),
        ("f8E8M0FNU", math.nan, "0xFF"),
        ("f4E2M1FN", -math.inf, "-6.0"),
    ],
)
def test_constants_of_small_types(element: str, value: float, same: str) -> None:
    """Without infinity it is the largest number; what is no number of the type is NaN."""
    type = build.scalar(element)
    assert build.splat(type, value) == build.attr(f"dense<{same}> : {type}")
