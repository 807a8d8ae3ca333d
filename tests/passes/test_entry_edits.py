"""Edits of an entry: the attributes of arguments and results follow them."""

from __future__ import annotations

from pullback import _jax
from pullback._jax import ir
from pullback.passes.base import NO_RULES
from pullback.passes.entry_edits import ReorderOperands, SelectResults
from pullback.passes.manager import run_stages
from pullback.passes.pipelines import parse_pipeline

ENTRY = """
func.func public @main(
    %x: tensor<f32> {jax.arg_info = "x"}, %y: tensor<f32> {tf.aliasing_output = 2 : i32},
    %z: tensor<f32> {jax.arg_info = "z", tf.aliasing_output = 1 : i32}
) -> (tensor<f32> {jax.result_info = "a"}, tensor<f32> {jax.result_info = "b"},
      tensor<f32> {jax.result_info = "c"}) {
  return %x, %y, %z : tensor<f32>, tensor<f32>, tensor<f32>
}
"""


def edited(edit: ReorderOperands | SelectResults) -> str:
    """The first line of the entry."""
    module = ir.Module.parse(ENTRY, _jax.context())
    edit.run(module, NO_RULES)
    assert module.operation.verify()
    return str(module).splitlines()[1].strip()


def test_arguments_in_another_order_have_their_attributes() -> None:
    assert edited(ReorderOperands(order=(2, 0, 1))).startswith(
        'func.func public @main(%arg0: tensor<f32> {jax.arg_info = "z", '
        'tf.aliasing_output = 1 : i32}, %arg1: tensor<f32> {jax.arg_info = "x"}, '
        "%arg2: tensor<f32> {tf.aliasing_output = 2 : i32}) -> ("
    )


def test_results_in_another_order_have_their_attributes() -> None:
    """What an argument names as its alias is the same result as before, or none."""
    assert edited(SelectResults(order=(2, 0))) == (
        'func.func public @main(%arg0: tensor<f32> {jax.arg_info = "x"}, '
        "%arg1: tensor<f32> {tf.aliasing_output = 0 : i32}, "
        '%arg2: tensor<f32> {jax.arg_info = "z"}) -> (tensor<f32> {jax.result_info = "c"}, '
        'tensor<f32> {jax.result_info = "a"}) {'
    )


def test_a_transpose_has_no_alias_of_a_result_that_is_gone() -> None:
    """The argument that it is by goes, with its attributes; the others keep theirs."""
    text = """
    func.func public @main(
        %x: tensor<f32> {jax.arg_info = "x"},
        %w: tensor<f32> {jax.arg_info = "w", tf.aliasing_output = 0 : i32}
    ) -> (tensor<f32> {jax.result_info = "product"}) {
      %0 = stablehlo.multiply %x, %w : tensor<f32>
      return %0 : tensor<f32>
    }
    """
    module = ir.Module.parse(text, _jax.context())
    run_stages(module, parse_pipeline("transpose{wrt=0}"), NO_RULES)
    assert str(module).splitlines()[1].strip() == (
        'func.func public @main(%arg0: tensor<f32> {jax.arg_info = "w"}, %arg1: tensor<f32>) '
        "-> tensor<f32> {"
    )


LAYOUTS = """
module attributes {
    mhlo.num_partitions = 1 : i32,
    mhlo.xla_entry_computation_parameter_layouts = [dense<[0, 1]> : tensor<2xindex>],
    mhlo.xla_entry_computation_result_layout = [dense<[0, 1]> : tensor<2xindex>]} {
  func.func public @main(%x: tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"})
      -> (tensor<2x3xf32> {mhlo.layout_mode = "default"}) {
    %0 = func.call @sine(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
  func.func private @sine(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.sine %x : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
"""


def test_layouts_stay_with_the_types_that_they_are_of() -> None:
    """PJRT refuses a layout of another rank, and layouts of fewer parameters than there are."""

    def after(pipeline: str) -> str:
        module = ir.Module.parse(LAYOUTS, _jax.context())
        run_stages(module, parse_pipeline(pipeline), NO_RULES)
        assert module.operation.verify()
        return str(module)

    same = after("inline-calls")
    assert "parameter_layouts" in same
    assert same.count('layout_mode = "{0,1}"') == 1
    for derived, layouts in (("vjp", 1), ("jvp", 1), ("vmap{size=4}", 0)):
        text = after(derived)
        assert "xla_entry_computation" not in text
        assert "mhlo.num_partitions = 1" in text
        assert text.count('layout_mode = "{0,1}"') == layouts
        assert text.count('layout_mode = "default"') == 1
