"""Modules that others write: what MLIR allows in them, and JAX does not write."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
import pullback_runtime
from pullback.errors import NotDifferentiableError
from pullback.passes.manager import run_pipeline
from pullback.tools.module_io import parse_module

CALLING = """
func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = call @f(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
"""
ENDS_AS_A_REGION = f"""{CALLING}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {{
  %0 = stablehlo.sine %x : tensor<f32>
  stablehlo.return %0 : tensor<f32>
}}
"""
TWO_BLOCKS = f"""{CALLING}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {{
  %0 = stablehlo.sine %x : tensor<f32>
  cf.br ^bb1(%0 : tensor<f32>)
^bb1(%y: tensor<f32>):
  return %y : tensor<f32>
}}
"""
WITH_FLAGS = """
module {
  llvm.module_flags [#llvm.mlir.module_flag<warning, "Debug Info Version", 3 : i32>]
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.sine %x : tensor<f32>
    return %0 : tensor<f32>
  }
}
"""


@pytest.mark.parametrize("text", [ENDS_AS_A_REGION, WITH_FLAGS])
def test_a_module_as_reactant_writes_it(text, tmp_path):
    """A function may end in `stablehlo.return`, and a module have ops without a name."""
    program = pb.load(text.encode())
    assert jnp.allclose(program(0.5), jnp.sin(0.5))
    assert jnp.allclose(program.jvp()(0.5, 1.0)[1], jnp.cos(0.5))
    assert jnp.allclose(program.grad()(0.5), jnp.cos(0.5))
    assert jnp.allclose(program.vmap(axis_size=2)(jnp.zeros(2)), 0.0)
    assert jnp.allclose(jax.grad(program.as_jax())(0.5), jnp.cos(0.5))
    file = tmp_path / "module.mlir"
    file.write_text(text)
    assert jnp.allclose(pullback_runtime.load(file)(0.5), jnp.sin(0.5))


def test_opt_reads_a_function_that_ends_as_a_region():
    module = parse_module(ENDS_AS_A_REGION)
    run_pipeline(module, "builtin.module(inline-calls,jvp{entry=main})")
    assert "stablehlo.cosine" in str(module)


def test_a_function_of_two_blocks_is_named():
    program = pb.load(TWO_BLOCKS.encode())
    for derive in (program.jvp, program.grad, program.vjp):
        with pytest.raises(NotDifferentiableError, match="`@f` has 2 blocks") as caught:
            derive()
        assert caught.value.do == "write control flow as stablehlo.if, case and while"
        assert caught.value.where == "-:7:1"
