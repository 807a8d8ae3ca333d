"""Loops of unknown length that use values from outside, as modules of other frontends do."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import pullback_runtime
from pullback import _jax
from pullback._jax import ir
from pullback.passes.manager import run_pipeline

LOOP = """func.func public @main(%x: tensor<2xf64>) -> tensor<2xf64> {
  %limit = stablehlo.constant dense<5.0> : tensor<f64>
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %one = stablehlo.constant dense<1.0> : tensor<f64>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<f64>, tensor<2xf64>
  cond {
    %go = stablehlo.compare LT, %i, %limit : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<f64>
    %s = stablehlo.sine %c : tensor<2xf64>
    %y = stablehlo.multiply %s, %x : tensor<2xf64>
    stablehlo.return %next, %y : tensor<f64>, tensor<2xf64>
  }
  return %r#1 : tensor<2xf64>
}"""
X = np.array([0.9, 1.3])


def unrolled(x):
    c = x
    for _ in range(5):
        c = jax.numpy.sin(c) * x
    return c


pytestmark = pytest.mark.usefixtures("float64")


ONLY_AT_FIRST = """func.func public @main(
    %n: tensor<i32>, %w: tensor<2xf64>, %t: tensor<2xf64>) -> tensor<2xf64> {
  %start = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<2xf64>
  %r:4 = stablehlo.while(INITS) : TYPES
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %i1 = stablehlo.add %i, %one : tensor<i32>
    %u1 = stablehlo.sine %u : tensor<2xf64>
    %scaled = stablehlo.multiply %s, %u : tensor<2xf64>
    %s1 = stablehlo.add %scaled, %a : tensor<2xf64>
    stablehlo.return YIELDS : TYPES
  }
  return %r#PLACE : tensor<2xf64>
}"""
CARRIES = {
    "i": ("%i = %start", "%i1", "tensor<i32>"),
    "a": ("%a = %t", "%zero", "tensor<2xf64>"),
    "u": ("%u = %w", "%u1", "tensor<2xf64>"),
    "s": ("%s = %t", "%s1", "tensor<2xf64>"),
}


@pytest.mark.parametrize("order", ["iaus", "aisu", "iasu", "uasi"])
def test_a_tangent_that_a_loop_of_unknown_length_replaces_by_zero(order):
    """What the loop hands on besides was taken for another carry."""
    inits, yields, types = (
        ", ".join(parts) for parts in zip(*(CARRIES[c] for c in order), strict=True)
    )
    text = ONLY_AT_FIRST.replace("INITS", inits).replace("YIELDS", yields)
    text = text.replace("TYPES", types).replace("PLACE", str(order.index("s")))
    n, w, t, ct = np.int32(3), X, np.array([0.5, -2.0]), np.array([1.5, 0.3])
    (out,) = pullback_runtime.compile(ir.Module.parse(text, _jax.context()))(n, w, t)
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, "transpose{wrt=2}", verify_each=True)
    (found,) = pullback_runtime.compile(module)(n, w, ct)
    np.testing.assert_allclose(np.dot(found, t), np.dot(out, ct), rtol=1e-12)


@pytest.mark.parametrize("pipeline", ["jvp", "vjp"])
def test_a_captured_value_gets_the_sum_over_all_iterations(pipeline):
    module = ir.Module.parse(LOOP, _jax.context())
    run_pipeline(module, pipeline, verify_each=True)
    _, found = pullback_runtime.compile(module)(X, np.ones(2))
    derivative = jax.jvp(unrolled, (X,), (np.ones(2),))[1]
    np.testing.assert_allclose(found, derivative, rtol=1e-12)


REDUCES = """func.func public @main(%n: tensor<i32>, %x: tensor<3xf64>) -> tensor<f64> {
  %start = stablehlo.constant dense<0> : tensor<i32>
  %first = stablehlo.constant dense<0.1> : tensor<f64>
  %r:2 = stablehlo.while(%i = %start, %c = %first) : tensor<i32>, tensor<f64>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %i1 = stablehlo.add %i, %one : tensor<i32>
    %y = "stablehlo.reduce"(%x, %c) ({
    ^bb0(%a: tensor<f64>, %b: tensor<f64>):
      %half = stablehlo.constant dense<0.5> : tensor<f64>
      %ab = stablehlo.multiply %a, %b : tensor<f64>
      %part = stablehlo.multiply %half, %ab : tensor<f64>
      %s = stablehlo.add %a, %b : tensor<f64>
      %t = stablehlo.add %s, %part : tensor<f64>
      stablehlo.return %t : tensor<f64>
    }) {dimensions = array<i64: 0>} : (tensor<3xf64>, tensor<f64>) -> tensor<f64>
    stablehlo.return %i1, %y : tensor<i32>, tensor<f64>
  }
  return %r#1 : tensor<f64>
}"""


def test_a_constant_of_a_reduction_that_stands_outside_of_the_loop():
    """Where `canonicalize` moves it; (1 + c / 2) (1 + x / 2) ... is what the body computes."""
    module = ir.Module.parse(REDUCES, _jax.context())
    run_pipeline(module, "canonicalize,vjp{wrt=1}", verify_each=True)
    x = np.array([0.3, -0.4, 0.7])
    y, found = pullback_runtime.compile(module)(np.int32(2), x, np.float64(1.0))
    whole = (1 + 0.1 / 2) * np.prod(1 + x / 2) ** 2
    np.testing.assert_allclose(y, 2 * (whole - 1), rtol=1e-12)
    np.testing.assert_allclose(found, 2 * whole / (1 + x / 2), rtol=1e-12)


DIVIDES = """func.func public @main(
    %p: tensor<i1>, %x: tensor<2x3xf64>, %y: tensor<2xf64>) -> (tensor<2x3xf64>, tensor<2xf64>) {
  %b = stablehlo.broadcast_in_dim %y, dims = [0] : (tensor<2xf64>) -> tensor<2x3xf64>
  %r:2 = "stablehlo.if"(%p) ({
    %q = stablehlo.divide %x, %b : tensor<2x3xf64>
    %s = stablehlo.sine %y : tensor<2xf64>
    stablehlo.return %q, %s : tensor<2x3xf64>, tensor<2xf64>
  }, {
    stablehlo.return %x, %y : tensor<2x3xf64>, tensor<2xf64>
  }) : (tensor<i1>) -> (tensor<2x3xf64>, tensor<2xf64>)
  return %r#0, %r#1 : tensor<2x3xf64>, tensor<2xf64>
}"""


def test_a_repeated_divisor_whose_source_has_no_cotangent_in_a_branch():
    """It is captured, but for a result that is not differentiated."""
    module = ir.Module.parse(DIVIDES, _jax.context())
    run_pipeline(module, "vjp{wrt=2 outs=0}", verify_each=True)
    x, y = np.arange(6.0).reshape(2, 3), np.array([0.5, 2.0])
    *_, found = pullback_runtime.compile(module)(np.True_, x, y, np.ones((2, 3)))
    np.testing.assert_allclose(found, -x.sum(1) / y**2, rtol=1e-12)


RULE = """
func.func public @main(%n: tensor<i32>, %x: tensor<f64>) -> tensor<f64> {
  %y = stablehlo.composite "pullback.custom_jvp_call" %n, %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<i32>, tensor<f64>) -> tensor<f64>
  return %y : tensor<f64>
}
func.func private @f(%n: tensor<i32>, %x: tensor<f64>) -> tensor<f64> {
  return %x : tensor<f64>
}
func.func private @f.jvp(
    %n: tensor<i32>, %x: tensor<f64>, %t: tensor<f64>) -> (tensor<f64>, tensor<f64>) {
  %start = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %r:3 = stablehlo.while(%i = %start, %s = %t, %u = %zero)
      : tensor<i32>, tensor<f64>, tensor<f64>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %i1 = stablehlo.add %i, %one : tensor<i32>
    %s1 = stablehlo.multiply %s, %x : tensor<f64>
    %s2 = stablehlo.add %s1, ADDED : tensor<f64>
    stablehlo.return %i1, %s2, %t : tensor<i32>, tensor<f64>, tensor<f64>
  }
  return %x, %r#1 : tensor<f64>, tensor<f64>
}"""


@pytest.mark.parametrize(("added", "factor"), [("%t", 4 + 2 + 1), ("%s", 9), ("%zero", 4)])
def test_a_tangent_that_a_loop_in_a_rule_uses_from_outside(added, factor):
    """Also where it only goes to a carry that nobody uses: it was to be kept for the reverse."""
    module = ir.Module.parse(RULE.replace("ADDED", added), _jax.context())
    run_pipeline(module, "vjp{wrt=1}", verify_each=True)
    _, found = pullback_runtime.compile(module)(np.int32(2), np.float64(2.0), np.float64(1.5))
    np.testing.assert_allclose(found, 1.5 * factor, rtol=1e-12)
