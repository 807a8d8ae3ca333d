"""Ops are compared by what they do."""

from __future__ import annotations

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.files.jax_export.compare_ops import ARGUMENT, Reading, size

FUNCTIONS = """
func.func private @{f}(%{x}: tensor<{T}>) -> tensor<{T}> {{
  %c = stablehlo.constant dense<2.0> : tensor<{T}>
  %0 = stablehlo.multiply %{x}, %c : tensor<{T}>
  %1 = stablehlo.subtract %0, %{x} : tensor<{T}>
  %2:2 = call @{h}(%1) : (tensor<{T}>) -> (tensor<{T}>, tensor<{T}>)
  return %2#0 : tensor<{T}>
}}
func.func private @{h}(%{x}: tensor<{T}>) -> (tensor<{T}>, tensor<{T}>) {{
  %0 = stablehlo.exponential %{x} : tensor<{T}>
  return %0, %{x} : tensor<{T}>, tensor<{T}>
}}
"""
TEXT = """
func.func @main(%x: tensor<3xf32>, %y: tensor<2x2xf32>) -> (tensor<3xf32>, tensor<2x2xf32>) {
  %0 = call @f(%x) : (tensor<3xf32>) -> tensor<3xf32>
  %1 = call @g(%y) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %0, %1 : tensor<3xf32>, tensor<2x2xf32>
}
"""
TEXT += FUNCTIONS.format(f="f", h="h", x="x", T="3xf32")
TEXT += FUNCTIONS.format(f="g", h="k", x="y", T="2x2xf32")


def reading_of(text: str) -> Reading:
    return Reading(ir.Module.parse(text, context=_jax.context()))


def calls(reading: Reading) -> list[ir.Operation]:
    return [op.operation for op in reading.functions["main"].regions[0].blocks[0].operations][:2]


@pytest.mark.parametrize(
    ("old", "new", "are_alike"),
    [
        ("", "", True),
        ("dense<2.0> : tensor<2x2xf32>", "dense<2.5> : tensor<2x2xf32>", False),
        ("subtract %0, %y", "subtract %y, %0", False),
        ("%2#0 : tensor<2x2xf32>", "%2#1 : tensor<2x2xf32>", False),
        ("exponential %y", "tanh %y", False),
        ("return %0, %y", "return %y, %0", False),
    ],
)
def test_calls_are_alike_if_the_functions_do_the_same(old: str, new: str, are_alike: bool) -> None:
    assert old in TEXT
    reading = reading_of(TEXT.replace(old, new))
    first, second = map(reading.alike, calls(reading))
    assert (first == second) is are_alike


def test_the_steps_of_a_result() -> None:
    """A step of `f` is found in `g`, which has another name and another shape."""
    reading = reading_of(TEXT)
    (step,) = reading.results("f")
    assert step.alike[0] == "func.call"
    assert step.number == 0
    assert size(step) == 6  # three of its own, the call, and two in there
    block = reading.functions["g"].regions[0].blocks[0]
    *_, call, _ = block.operations
    given = {}
    assert reading.matches(step, call.results[0], given)
    assert given[ARGUMENT] == block.arguments[0]
    assert not reading.matches(step, call.results[1], {})


def test_constants_of_several_numbers_and_types_of_results() -> None:
    text = """
    func.func @main(%x: tensor<2xf32>) -> (tensor<2xf64>, tensor<2xf16>) {
      %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
      %b = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
      %c = stablehlo.constant dense<[1.0, 3.0]> : tensor<2xf32>
      %0 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf64>
      %1 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf16>
      return %0, %1 : tensor<2xf64>, tensor<2xf16>
    }"""
    reading = reading_of(text)
    a, b, c, wide, narrow, _ = map(
        reading.alike, reading.functions["main"].regions[0].blocks[0].operations
    )
    assert a == b
    assert a != c
    assert wide != narrow
