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


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("pipeline", ["jvp", "vjp"])
def test_a_captured_value_gets_the_sum_over_all_iterations(pipeline):
    module = ir.Module.parse(LOOP, _jax.context())
    run_pipeline(module, pipeline, verify_each=True)
    _, found = pullback_runtime.compile(module)(X, np.ones(2))
    derivative = jax.jvp(unrolled, (X,), (np.ones(2),))[1]
    np.testing.assert_allclose(found, derivative, rtol=1e-12)
