"""Zeros of a dynamic shape take the size of a value, which has to be known where they stand."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

import pullback_runtime
from pullback import _jax
from pullback._jax import ir
from pullback.errors import MissingRuleError
from pullback.passes.manager import run_pipeline

T = "tensor<?xf64>"
CALLED = f"""
func.func @main(%x: {T}, %y: {T}, %n: tensor<i32>) -> {T} {{
  %r = call @called(%x, %y, %n) : ({T}, {T}, tensor<i32>) -> {T}
  %s = stablehlo.sine %r : {T}
  return %s : {T}
}}
func.func private @called(%x: {T}, %y: {T}, %n: tensor<i32>) -> {T} {{
  STEPS
}}
func.func private @pair(%a: {T}, %b: {T}) -> ({T}, {T}) {{
  %p = stablehlo.multiply %a, %a : {T}
  return %p, %b : {T}, {T}
}}
func.func private @fwd(%a: {T}, %b: {T}) -> ({T}, {T}, {T}) {{
  %p = stablehlo.multiply %a, %a : {T}
  return %p, %b, %a : {T}, {T}, {T}
}}
func.func private @bwd(%a: {T}, %c: {T}, %d: {T}) -> ({T}, {T}) {{
  %p = stablehlo.multiply %a, %c : {T}
  %q = stablehlo.add %p, %p : {T}
  return %q, %d : {T}, {T}
}}
func.func private @linear(%a: {T}, %b: {T}) -> ({T}, {T}) {{
  %p = stablehlo.multiply %a, %b : {T}
  return %p, %b : {T}, {T}
}}
func.func private @transposed(%a: {T}, %c: {T}, %d: {T}) -> {T} {{
  %p = stablehlo.multiply %a, %c : {T}
  %q = stablehlo.add %p, %d : {T}
  return %q : {T}
}}
"""
LOOP = f"""%zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %c = %x, %d = %y) : tensor<i32>, {T}, {T}
  cond {{
    %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
    %e = stablehlo.add %d, %d : {T}
    stablehlo.return %j, %e, %d : tensor<i32>, {T}, {T}
  }}
  return %r#1 : {T}"""
STEPS = {
    "branch": f"""%r = "stablehlo.case"(%n) ({{
    %a = stablehlo.sine %x : {T}
    stablehlo.return %a : {T}
  }}, {{
    %b = stablehlo.cosine %y : {T}
    stablehlo.return %b : {T}
  }}) : (tensor<i32>) -> {T}
  return %r : {T}""",
    "loop": LOOP,
    "custom_vjp_call": f"""%r:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %y {{
    composite_attributes = {{fwd = @fwd, bwd = @bwd}}, decomposition = @pair
  }} : ({T}, {T}) -> ({T}, {T})
  return %r#0 : {T}""",
    "linear_call": f"""%r:2 = stablehlo.composite "pullback.linear_call" %x, %y {{
    composite_attributes = {{num_residuals = 1 : i64, transpose = @transposed}},
    decomposition = @linear
  }} : ({T}, {T}) -> ({T}, {T})
  return %r#0 : {T}""",
}


def derived(text: str, pipeline: str) -> str:
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, f"builtin.module({pipeline})", verify_each=True)
    return str(module)


PIPELINES = ["jvp{wrt=0}", "jvp{wrt=1}", "vjp", "vjp,jvp"]
NOT_YET = {("custom_vjp_call", pipeline) for pipeline in PIPELINES[:2]}


@pytest.mark.parametrize(
    ("name", "pipeline"), sorted({*itertools.product(STEPS, PIPELINES)} - NOT_YET)
)
def test_the_derivative_is_that_of_the_static_shape(name: str, pipeline: str) -> None:
    text = CALLED.replace("STEPS", STEPS[name])
    random = np.random.default_rng(0)
    given = [random.standard_normal(2), random.standard_normal(2), np.int32(1)]
    with jax.enable_x64(True):
        static = pullback_runtime.compile(derived(text.replace("?", "2"), pipeline))
        dynamic = pullback_runtime.compile(derived(text, pipeline).replace("?", "2"))
        more = [random.standard_normal(2) for _ in static.in_avals[3:]]
        found, expected = dynamic(*given, *more), static(*given, *more)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("case", sorted(NOT_YET))
def test_zeros_of_the_size_of_a_tangent_that_is_not_handed_on(case: tuple[str, str]) -> None:
    """It was said not to be linear."""
    name, pipeline = case
    with pytest.raises(MissingRuleError, match="needs a constant of dynamic shape"):
        derived(CALLED.replace("STEPS", STEPS[name]), pipeline)


def test_zeros_like_a_tangent_do_not_depend_on_it() -> None:
    text = """func.func @main(%x: tensor<2xf64>, %t: tensor<2xf64>) -> tensor<2xf64> {
      %zero = "chlo.constant_like"(%t) {value = 0.0 : f64} : (tensor<2xf64>) -> tensor<2xf64>
      %y = stablehlo.maximum %x, %zero : tensor<2xf64>
      %r = stablehlo.multiply %y, %t : tensor<2xf64>
      return %r : tensor<2xf64>
    }"""
    with jax.enable_x64(True):
        compiled = pullback_runtime.compile(derived(text, "transpose{wrt=1}"))
        (found,) = compiled(np.array([3.0, -2.0]), np.array([5.0, 7.0]))
    np.testing.assert_allclose(found, [15.0, 0.0])


def test_a_branch_may_give_zeros_of_a_dynamic_shape_beside_what_is_linear() -> None:
    """The cotangent of what a branch does not use; it is linear, next to that of the others."""
    text = f"""func.func @main(%x: {T}, %y: {T}, %n: tensor<i32>) -> {T} {{
      %r = "stablehlo.case"(%n) ({{
        %a = stablehlo.add %x, %x : {T}
        stablehlo.return %a : {T}
      }}, {{
        stablehlo.return %y : {T}
      }}) : (tensor<i32>) -> {T}
      return %r : {T}
    }}"""
    assert "chlo.constant_like" in derived(text, "vjp")
    with jax.enable_x64(True):
        linear = derived(text, "linearize").replace("?", "2")
        compiled = pullback_runtime.compile(linear, entry="main.linear")
        *residuals, tangent, other = (np.zeros(a.shape, a.dtype) for a in compiled.in_avals)
        (found,) = compiled(*residuals, tangent + 3.0, other + 5.0)
    np.testing.assert_allclose(found, [6.0, 6.0])
