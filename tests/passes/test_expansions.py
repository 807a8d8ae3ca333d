"""Ops that are differentiated as the ops that compute them: what is linear, and what is kept."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import _jax
from pullback._jax import ir
from pullback.passes.manager import run_pipeline

RULE = """
func.func public @main(%x: tensor<3xf64>) -> tensor<3xf64> {
  %y = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<3xf64>) -> tensor<3xf64>
  return %y : tensor<3xf64>
}
func.func private @f(%x: tensor<3xf64>) -> tensor<3xf64> {
  return %x : tensor<3xf64>
}
func.func private @f.jvp(%x: tensor<3xf64>, %t: tensor<3xf64>) -> (tensor<3xf64>, tensor<3xf64>) {
  %i = stablehlo.constant dense<[[2], [0], [5]]> : tensor<3x1xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %u = OP
  return %x, %u : tensor<3xf64>, tensor<3xf64>
}"""
OPS = {
    "scatter": """"stablehlo.scatter"(%t, %i, %t) <{
      scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true
    }> ({
    ^bb0(%a: tensor<f64>, %b: tensor<f64>):
      %c = stablehlo.add %b, %b : tensor<f64>
      stablehlo.return %c : tensor<f64>
    }) : (tensor<3xf64>, tensor<3x1xi32>, tensor<3xf64>) -> tensor<3xf64>""",
    "reduce_window": """"stablehlo.reduce_window"(%t, %zero) <{
      window_dimensions = array<i64: 2>, padding = dense<[[0, 1]]> : tensor<1x2xi64>
    }> ({
    ^bb0(%a: tensor<f64>, %b: tensor<f64>):
      %c = stablehlo.negate %b : tensor<f64>
      %d = stablehlo.subtract %a, %c : tensor<f64>
      stablehlo.return %d : tensor<f64>
    }) : (tensor<3xf64>, tensor<f64>) -> tensor<3xf64>""",
}
MAPS = {
    "scatter": [[0, 2, 0], [0, 1, 0], [2, 0, 0]],
    "reduce_window": [[1, 1, 0], [0, 1, 1], [0, 0, 1]],
}


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", OPS)
def test_a_tangent_may_pass_a_body_that_is_linear(name):
    """The scatter was to keep the tangent, for what reads a place before it is written."""
    module = ir.Module.parse(RULE.replace("OP", OPS[name]), _jax.context())
    run_pipeline(module, "vjp", verify_each=True)
    x, ct = np.array([0.3, 0.5, 0.7]), np.array([1.0, 10.0, 100.0])
    _, found = pullback_runtime.compile(module)(x, ct)
    np.testing.assert_allclose(found, ct @ np.array(MAPS[name], float), rtol=1e-12)


def test_nothing_is_kept_that_only_the_op_itself_needs():
    text = """func.func public @main(%x: tensor<5xf64>, %i: tensor<2xi32>) -> tensor<2xf64> {
      %y = stablehlo.reduce_precision %x, format = e8m10 : tensor<5xf64>
      %z = "stablehlo.torch_index_select"(%y, %i) <{batch_dims = 0 : i64, dim = 0 : i64}>
        : (tensor<5xf64>, tensor<2xi32>) -> tensor<2xf64>
      return %z : tensor<2xf64>
    }"""
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, "vjp{wrt=0 split=true}", verify_each=True)
    assert "@main.bwd(%arg0: tensor<2xi32>, %arg1: tensor<2xf64>)" in str(module)


@pytest.mark.usefixtures("float64")
def test_the_maximum_of_dilated_windows_is_transposed():
    """Its jvp is a window with a body of JAX's own, which JAX does not transpose with dilation."""
    x = jnp.asarray(np.random.default_rng(0).permutation(24).reshape(4, 6), float)

    def maximum(x):
        dilation = {"window_dilation": (2, 3)}
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (2, 2), (1, 1), "VALID", **dilation)

    def tangent(t):
        return jax.jvp(maximum, (x,), (t,))[1]

    ct = np.random.default_rng(1).standard_normal(maximum(x).shape)
    with pytest.raises(NotImplementedError, match="window dilation"):
        jax.linear_transpose(tangent, x)(ct)
    (found,) = pb.linear_transpose(tangent, x)(ct)
    np.testing.assert_allclose(found, np.einsum("abij,ab", jax.jacfwd(maximum)(x), ct))
