"""`erase-dead` and `inline-calls` change no result: programs run before and after."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.passes.manager import run_pipeline, verify_module

LOOP = """
func.func @main(%n: tensor<i32>, %x: tensor<3xf32>) -> tensor<3xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:4 = stablehlo.while(%i = %zero, %a = %x, %dead = %x, %feeds = %x)
      : tensor<i32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32> cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = func.call @half_of_sum(%a, %feeds) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %3 = func.call @half_of_sum(%dead, %a) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %4 = stablehlo.sine %feeds : tensor<3xf32>
    stablehlo.return %1, %2, %3, %4 : tensor<i32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  }
  return %0#1 : tensor<3xf32>
}
func.func private @half_of_sum(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %x, %y : tensor<3xf32>
  %half = stablehlo.constant dense<0.5> : tensor<3xf32>
  %1 = stablehlo.multiply %0, %half : tensor<3xf32>
  return %1 : tensor<3xf32>
}
"""


def parse(source: str) -> ir.Module:
    return ir.Module.parse(source, _jax.context())


def expected(n: int, x: np.ndarray) -> np.ndarray:
    feeds = x
    for _ in range(n):
        x, feeds = (x + feeds) / 2, np.sin(feeds)
    return x


def interpret(module: ir.Module, n: int, x: np.ndarray) -> np.ndarray:
    with module.context:
        arguments = [
            ir.DenseElementsAttr.get(np.asarray(n, np.int32)),
            ir.DenseElementsAttr.get(x),
        ]
        (result,) = _jax.stablehlo.eval_module(module, arguments)
        return np.array(result)


@pytest.mark.parametrize(
    "pipeline", ["erase-dead", "inline-calls", "erase-dead,inline-calls", "inline-calls,erase-dead"]
)
def test_loop_computes_the_same(pipeline: str) -> None:
    module = parse(LOOP)
    run_pipeline(module, pipeline)
    verify_module(module)
    x = np.array([0.5, -1.0, 2.0], np.float32)
    np.testing.assert_allclose(interpret(module, 5, x), expected(5, x), rtol=1e-6)
    carries = 3 if "erase-dead" in pipeline else 4
    assert f":{carries} = stablehlo.while" in str(module)


def test_inlining_a_thousand_ops_is_cheap() -> None:
    body = "\n".join(f"%x{i} = stablehlo.add %a, %a : tensor<f32>" for i in range(1000))
    source = f"""
func.func @main(%a: tensor<f32>) -> tensor<f32> {{
  %0 = call @big(%a) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}}
func.func private @big(%a: tensor<f32>) -> tensor<f32> {{
  {body}
  return %x9 : tensor<f32>
}}"""

    def seconds() -> float:
        module = parse(source)
        start = time.perf_counter()
        run_pipeline(module, "inline-calls")
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.010  # about 1.5 ms on an idle machine
