"""An entry that other functions call or name: passes change it in place, and leave them a copy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import pullback as pb
from pullback import _jax
from pullback._jax import ir
from pullback.ir.symbols import functions
from pullback.ir.verify import verify
from pullback.passes.manager import run_pipeline
from pullback_runtime import call_module, make_handle

PASSES = ["jvp", "vjp", "vjp{split=true}", "linearize", "transpose", "vmap{size=2}"]

CALLED = """
func.func public @main(%x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.negate %x : tensor<f64>
  return %0 : tensor<f64>
}
func.func public @other(%x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.sine %x : tensor<f64>
  %1 = call @main(%0) : (tensor<f64>) -> tensor<f64>
  return %1 : tensor<f64>
}
"""
TRANSPOSED = """
func.func public @main(%x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.composite "pullback.linear_call" %x {
    composite_attributes = {num_residuals = 0 : i64, transpose = @main}, decomposition = @twice
  } : (tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
func.func private @twice(%x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.add %x, %x : tensor<f64>
  return %0 : tensor<f64>
}
"""
# The tangent of the sine is written with the sine: cos x = sin(x + pi/2).
RULE = """
func.func public @main(%x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @sine.jvp}, decomposition = @sine
  } : (tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
func.func private @sine(%x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.sine %x : tensor<f64>
  return %0 : tensor<f64>
}
func.func private @sine.jvp(%x: tensor<f64>, %t: tensor<f64>) -> (tensor<f64>, tensor<f64>) {
  %quarter = stablehlo.constant dense<1.5707963267948966> : tensor<f64>
  %0 = call @main(%x) : (tensor<f64>) -> tensor<f64>
  %1 = stablehlo.add %x, %quarter : tensor<f64>
  %2 = call @main(%1) : (tensor<f64>) -> tensor<f64>
  %3 = stablehlo.multiply %2, %t : tensor<f64>
  return %0, %3 : tensor<f64>, tensor<f64>
}
"""


def after(text: str, *pipelines: str) -> ir.Module:
    module = ir.Module.parse(text, _jax.context())
    for pipeline in pipelines:
        run_pipeline(module, pipeline)
    assert module.operation.verify()
    verify(module)
    return module


@pytest.mark.parametrize("name", PASSES)
def test_a_function_that_calls_the_entry(name):
    module = after(CALLED, name)
    with jax.enable_x64(True):
        (found,) = call_module(make_handle(module, entry="other"), np.float64(0.3))
        np.testing.assert_allclose(found, -np.sin(0.3), rtol=1e-12)


@pytest.mark.parametrize("name", PASSES)
def test_an_entry_that_is_its_own_transpose(name):
    after(TRANSPOSED, name)


@pytest.mark.parametrize("name", ["jvp", "vjp", "vjp{split=true}", "linearize", "vmap{size=2}"])
def test_a_rule_that_calls_the_entry(name):
    after(RULE, name)


def test_names_that_are_taken_are_not_taken_again():
    module = after(CALLED.replace("@other", "@main.primal"), "vjp")
    assert {"main", "main.primal", "main.primal_0"} <= set(functions(module))


MESHES = "".join(f'sdy.mesh @{name} = <["x"=2]>' for name in ("main.primal", "main.bwd"))


@pytest.mark.parametrize("name", PASSES)
def test_names_that_meshes_have_are_not_taken_again(name):
    """The module did not verify any more."""
    assert "main.primal_0" in functions(after(MESHES + CALLED, name))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_numbers_of_a_rule_that_calls_the_entry(order):
    with jax.enable_x64(True):
        program = pb.load(RULE.encode())
        for _ in range(order):
            program = program.grad()
        expected = np.sin(0.3 + order * np.pi / 2)
        np.testing.assert_allclose(program(0.3), expected, rtol=1e-12)
