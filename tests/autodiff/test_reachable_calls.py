"""Which calls derivatives meet, what of them is perturbed, and by derivatives of which order."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from pullback import artifact
from pullback._jax import ir
from pullback.autodiff.reachable_calls import Meetings, have_rules
from pullback.ir.symbols import functions
from pullback_runtime import _jax

CALLS = """
func.func @main(%x: tensor<f32>, %n: tensor<i32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %c = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x, %c {
    composite_attributes = {jvp.10 = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %1 = stablehlo.composite "pullback.custom_jvp_call" %c, %c {
    decomposition = @still
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %2 = call @called(%0, %0) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %3 = stablehlo.composite "somebody.else" %x {
    decomposition = @inner
  } : (tensor<f32>) -> tensor<f32>
  return %1, %2, %3 : tensor<f32>, tensor<f32>, tensor<f32>
}
func.func private @f(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x, %y {
    decomposition = @in_f
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f.jvp(
    %x: tensor<f32>, %y: tensor<f32>, %dx: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = stablehlo.composite "pullback.linear_call" %y, %dx {
    composite_attributes = {num_residuals = 1 : i64, transpose = @scaled}, decomposition = @scaled
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %x, %0 : tensor<f32>, tensor<f32>
}
func.func private @scaled(%y: tensor<f32>, %t: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %t {
    decomposition = @inner
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @called(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x, %y, %y {
    composite_attributes = {closed_over = 1 : i64}, decomposition = @closing
  } : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @closing(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x, %y {
    decomposition = @in_closing
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @still(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @in_f(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @in_closing(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @inner(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    decomposition = @id
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @id(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @nobody(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    decomposition = @nobodys
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @nobodys(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
"""


def test_what_is_met():
    module = ir.Module.parse(CALLS, _jax.context())
    met = Meetings(functions(module)).now()
    assert {each.call.decomposition: each[1:] for each in met} == {
        "f": ("10", 0, None, False),
        "closing": ("011", 0, None, False),
        "in_closing": ("11", 0, None, False),
        "id": ("1", 0, 1, False),
        "scaled": ("11", 1, 1, False),
        "inner": ("1", 1, 1, False),
        "in_f": ("10", 0, None, True),
    }
    assert len(met) == 7


def _calling(function, call, **rules):
    """A function that is a call with these rules; without rules of its own where there are none."""
    named = ", ".join(f"{kind} = @{rule}" for kind, rule in rules.items())
    return f"""
func.func {"public" if function == "main" else "private"} @{function}(
    %x: tensor<f32>) -> tensor<f32> {{
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {{
    composite_attributes = {{{named}}}, decomposition = @{call}
  }} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}}
func.func private @{call}(%x: tensor<f32>) -> tensor<f32> {{
  return %x : tensor<f32>
}}"""


def test_the_order_of_the_derivative_that_meets_a_call():
    """Reverse mode transposes what a jvp rule calls, and has the transposes in what it gives."""
    module = ir.Module.parse(
        _calling("main", "f", jvp="jvp", transpose="t")
        + _calling("jvp", "in_jvp", jvp="jvp_jvp", transpose="jvp_t")
        + _calling("t", "in_t", jvp="t_jvp", transpose="t_t")
        + _calling("jvp_jvp", "in_jvp_jvp")
        + _calling("jvp_t", "in_jvp_t", jvp="jvp_t_jvp", transpose="jvp_t_t")
        + _calling("t_jvp", "in_t_jvp")
        + _calling("t_t", "in_t_t")
        + _calling("jvp_t_jvp", "in_jvp_t_jvp")
        + _calling("jvp_t_t", "in_jvp_t_t"),
        _jax.context(),
    )
    met = Meetings(functions(module)).now()
    asks = {each.call.decomposition: (each.order("jvp"), each.order("transpose")) for each in met}
    assert asks == {
        "f": (1, 1),
        "in_jvp": (2, 1),
        "in_jvp_t": (2, 2),
        "in_t": (2, 2),
        "in_jvp_jvp": (3, 2),
        "in_t_jvp": (3, 2),
        "in_jvp_t_jvp": (3, 2),
        "in_t_t": (3, 3),
        "in_jvp_t_t": (3, 3),
    }
    assert have_rules(met, 2)
    assert not have_rules(met, 3)
    assert not have_rules(met)


def test_transposes_inside_of_a_function_that_a_rule_transposes():
    """The rule is linear by a function with a rule of its own, which solves by iteration."""
    a = np.array([[2.0, 1.0], [1.0, 2.0]])

    @jax.custom_jvp
    def solve(b):
        return jax.scipy.sparse.linalg.cg(lambda x: 2 * x + x[::-1], b)[0]

    solve.defjvp(lambda b, t: (solve(*b), solve(*t)))

    @jax.custom_jvp
    def function(b):
        return jnp.sin(b)

    function.defjvp(lambda b, t: (function(*b), solve(t[0])))
    b = np.array([0.5, 2.0])
    program = pb.trace(lambda b: jnp.sum(function(b) * b))(b)
    for order in (1, 2, None):
        loaded = pb.load(artifact.serialize(program, order=order))
        assert jnp.allclose(loaded.grad()(b), np.sin(b) + np.linalg.solve(a, b))  # JAX refuses
        if order is None:
            second = loaded.grad().jvp()(b, b)[1]
            assert jnp.allclose(second, 2 * np.linalg.solve(a, b))
