"""Forms of ops that have no derivative say so, and name what they are and what to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback_runtime
from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback.errors import MissingRuleError, NotDifferentiableError, NotLinearError
from pullback.ir import build
from pullback.passes.manager import run_pipeline

pytestmark = pytest.mark.whole

CALL = """
func.func public @main(%x: tensor<4xf64>) -> tensor<4xRESULT> {
  %0 = stablehlo.custom_call @my_kernel(%x) : (tensor<4xf64>) -> tensor<4xRESULT>
  return %0 : tensor<4xRESULT>
}
"""
CALL_OF_TUPLE = """
func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.custom_call @my_kernel(%x) : (tensor<4xf64>) -> tuple<tensor<4xf64>, tensor<i32>>
  %1 = stablehlo.get_tuple_element %0[0]
    : (tuple<tensor<4xf64>, tensor<i32>>) -> tensor<4xf64>
  return %1 : tensor<4xf64>
}
"""
SCATTER = """
func.func public @main(%x: tensor<5xf64>, %i: tensor<3x1xi32>, %u: tensor<3xf64>)
    -> tensor<5xf64> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    BODY
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<5xf64>, tensor<3x1xi32>, tensor<3xf64>) -> tensor<5xf64>
  return %0 : tensor<5xf64>
}
"""
PRODUCT = """%m = stablehlo.multiply %a, %b : tensor<f64>
    stablehlo.return %m : tensor<f64>"""
MEAN = """%s = stablehlo.subtract %b, %a : tensor<f64>
    %t = stablehlo.tanh %s : tensor<f64>
    stablehlo.return %t : tensor<f64>"""
COMPLEX_REMAINDER = """
func.func public @main(%x: tensor<complex<f64>>, %y: tensor<complex<f64>>)
    -> tensor<complex<f64>> {
  %0 = stablehlo.remainder %x, %y : tensor<complex<f64>>
  return %0 : tensor<complex<f64>>
}
"""
LARGEST = """
func.func public @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %m = stablehlo.maximum %a, %b : tensor<f64>
    stablehlo.return %m : tensor<f64>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}
"""
OUTFEED = """
func.func public @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %token = stablehlo.create_token : !stablehlo.token
  %0 = "stablehlo.outfeed"(%x, %token) {outfeed_config = ""}
    : (tensor<4xf64>, !stablehlo.token) -> !stablehlo.token
  return %x : tensor<4xf64>
}
"""
SEND = """
func.func public @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %token = stablehlo.create_token : !stablehlo.token
  %0 = "stablehlo.send"(%x, %token) {
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true}
    : (tensor<4xf64>, !stablehlo.token) -> !stablehlo.token
  return %x : tensor<4xf64>
}
"""
DYNAMIC_PAD = """
func.func public @main(%x: tensor<3xf64>, %low: tensor<1xi32>) -> tensor<5xf64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %0 = stablehlo.dynamic_pad %x, %zero, %low, %none, %none
    : (tensor<3xf64>, tensor<f64>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<5xf64>
  return %0 : tensor<5xf64>
}
"""
DYNAMIC_SHAPE = """
func.func public @main(%x: tensor<?xf64>, %shape: tensor<1xi32>) -> tensor<?xf64> {
  %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<?xf64>, tensor<1xi32>) -> tensor<?xf64>
  return %0 : tensor<?xf64>
}
"""
EINSUM = """
func.func public @main(%x: tensor<2x3xf64>, %y: tensor<4xf64>) -> tensor<RESULTf64> {
  %0 = stablehlo.einsum %x, %y, config = "CONFIG"
    : (tensor<2x3xf64>, tensor<4xf64>) -> tensor<RESULTf64>
  return %0 : tensor<RESULTf64>
}
"""


def einsum(config: str, result: str = "2x4x") -> str:
    return EINSUM.replace("CONFIG", config).replace("RESULT", result)


MIXED_EINSUM = """
func.func public @main(%x: tensor<3xf64>, %y: tensor<3xf32>) -> tensor<f64> {
  %0 = stablehlo.einsum %x, %y, config = "a,a->" : (tensor<3xf64>, tensor<3xf32>) -> tensor<f64>
  return %0 : tensor<f64>
}
"""
UNARY_EINSUM = """
func.func public @main(%x: tensor<2x3xf64>) -> tensor<2xf64> {
  %0 = stablehlo.unary_einsum %x, config = "aa->a" : (tensor<2x3xf64>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}
"""
INDEX_SELECT = """
func.func public @main(%x: tensor<2x3xf64>, %i: tensor<2xi32>) -> tensor<2x2xf64> {
  %0 = "stablehlo.torch_index_select"(%x, %i) {dim = -1 : i64, batch_dims = 0 : i64}
    : (tensor<2x3xf64>, tensor<2xi32>) -> tensor<2x2xf64>
  return %0 : tensor<2x2xf64>
}
"""
SET_SIZE = """
func.func public @main(%x: tensor<3x5xf64>, %n: tensor<i32>) -> RESULT {
  %0 = stablehlo.set_dimension_size %x, %n, dim = 1 : (tensor<3x5xf64>, tensor<i32>) -> TYPE
  %1 = NEXT
  return %1 : RESULT
}
"""
BOUNDED = "tensor<3x?xf64, #stablehlo.bounds<?, 5>>"


def set_size(next: str, type: str = BOUNDED, result: str = BOUNDED) -> str:
    return SET_SIZE.replace("NEXT", next).replace("TYPE", type).replace("RESULT", result)


PRODUCT_OF_BOUNDED = set_size(
    f"stablehlo.dot_general %0, %0, contracting_dims = [0] x [0] : ({BOUNDED}, {BOUNDED}) "
    "-> tensor<?x?xf64, #stablehlo.bounds<5, 5>>",
    result="tensor<?x?xf64, #stablehlo.bounds<5, 5>>",
)
SET_SIZE_IN_A_BRANCH = """
func.func public @main(%x: tensor<5xf64>, %n: tensor<i32>, %p: tensor<i1>) -> tensor<f64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.set_dimension_size %x, %n, dim = 0
      : (tensor<5xf64>, tensor<i32>) -> tensor<?xf64, #stablehlo.bounds<5>>
    %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<?xf64, #stablehlo.bounds<5>>, tensor<f64>) -> tensor<f64>
    stablehlo.return %2 : tensor<f64>
  }, {
    stablehlo.return %zero : tensor<f64>
  }) : (tensor<i1>) -> tensor<f64>
  return %0 : tensor<f64>
}
"""
ALONG_ROWS = """
func.func public @main(%x: tensor<2xf64>, %y: tensor<2x2xf64>) -> tensor<2x2xf64> {
  %0 = chlo.broadcast_add %x, %y {broadcast_dimensions = array<i64: 0>}
    : (tensor<2xf64>, tensor<2x2xf64>) -> tensor<2x2xf64>
  return %0 : tensor<2x2xf64>
}
"""
BODY_ON_ARRAYS = """
func.func public @main(%x: tensor<4x2xf64>, %init: tensor<2xf64>) -> tensor<2x1xf64> {
  %0 = "stablehlo.reduce_window"(%x, %init) ({
  ^bb0(%a: tensor<2xf64>, %b: tensor<2xf64>):
    %1 = stablehlo.add %a, %b : tensor<2xf64>
    stablehlo.return %1 : tensor<2xf64>
  }) {padding = dense<[[2, 2], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 4, 2>,
      window_strides = array<i64: 3, 1>}
    : (tensor<4x2xf64>, tensor<2xf64>) -> tensor<2x1xf64>
  return %0 : tensor<2x1xf64>
}
"""
BODY_ON_WIDER = """
func.func public @main(%x: tensor<4xf32>) -> tensor<f64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce"(%x, %zero) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %1 = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %1 : tensor<f64>
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f64>
  return %0 : tensor<f64>
}
"""
WHOLE = "tensor<3x5xf64>"
FUTURE = """
func.func public @main(%x: tensor<4xf64>) -> !stablehlo.future<tensor<2xf64>> {
  %0 = "stablehlo.async_start"(%x) ({
  ^bb0(%a: tensor<4xf64>):
    %1 = stablehlo.slice %a [0:2] : (tensor<4xf64>) -> tensor<2xf64>
    stablehlo.return %1 : tensor<2xf64>
  }) : (tensor<4xf64>) -> !stablehlo.future<tensor<2xf64>>
  return %0 : !stablehlo.future<tensor<2xf64>>
}
"""

ALL_TO_ALL_OF_TWO = """
func.func public @main(%x: tensor<2xf64>, %y: tensor<2xf64>) -> tensor<2xf64> {
  %0:2 = "stablehlo.all_to_all"(%x, %y) {
    split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64,
    replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>
  } : (tensor<2xf64>, tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>)
  return %0#0 : tensor<2xf64>
}
"""

DYNAMIC_SUM = """
func.func public @main(%x: tensor<?xf64>) -> tensor<f64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf64>, tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
"""

REFUSALS = {
    "custom_call": (CALL.replace("RESULT", "f64"), "`stablehlo.custom_call` @my_kernel"),
    "scatter_product": (
        SCATTER.replace("BODY", PRODUCT),
        "`stablehlo.scatter` that multiplies, with respect to its updates",
    ),
    "scatter_apply": (SCATTER.replace("BODY", MEAN), "`stablehlo.scatter` with a body of its own"),
    "complex_remainder": (COMPLEX_REMAINDER, "`stablehlo.remainder` of complex numbers"),
    "all_reduce": (LARGEST, "`stablehlo.all_reduce` that reduces with stablehlo.maximum"),
    "all_to_all": (ALL_TO_ALL_OF_TWO, "`stablehlo.all_to_all` of several operands"),
    "outfeed": (OUTFEED, "`stablehlo.outfeed`"),
    "send": (SEND, "`stablehlo.send`"),
    "dynamic_pad": (DYNAMIC_PAD, "`stablehlo.dynamic_pad` whose operand 2 is not a constant"),
    "dynamic_shape": (DYNAMIC_SHAPE, "`stablehlo.dynamic_reshape` with a dynamic shape"),
    "einsum_blank": (einsum("ab, c->abc"), '`stablehlo.einsum` with config "ab, c->abc"'),
    "einsum_operands": (einsum("ab->a"), '`stablehlo.einsum` with config "ab->a": it must name 2'),
    "einsum_rank": (einsum("abc,c->a"), '"abc,c->a": `abc` does not fit an operand of rank 2'),
    "einsum_dots": (einsum("a...b...,c->a"), '"a...b...,c->a": it must name 2 operand(s)'),
    "einsum_size": (einsum("ab,b->a"), '"ab,b->a": `b` has two sizes'),
    "einsum_result": (einsum("ab,c->ad"), '"ab,c->ad": its result has a label that no operand'),
    "einsum_type": (einsum("ab,c->ac", "2x5x"), "`stablehlo.einsum` that gives tensor<2x5xf64>"),
    "einsum_mixed": (MIXED_EINSUM, '"a,a->": its operands have different element types'),
    "unary_einsum": (UNARY_EINSUM, '`stablehlo.unary_einsum` with config "aa->a": `a` has two'),
    "set_size_hidden": (
        set_size(f"stablehlo.sine %0 : {WHOLE}", WHOLE, WHOLE),
        "`stablehlo.set_dimension_size` to another size than that of its result type",
    ),
    "set_size_product": (PRODUCT_OF_BOUNDED, "rule for `stablehlo.dot_general` of a dynamic shape"),
    "set_size_branch": (
        SET_SIZE_IN_A_BRANCH,
        "`stablehlo.set_dimension_size` in a loop or branch",
    ),
    "custom_call_tuple": (CALL_OF_TUPLE, "`stablehlo.custom_call` @my_kernel"),
    "future": (FUTURE, "rule for `func.return` of a future"),
    "index_select": (INDEX_SELECT, "`stablehlo.torch_index_select` with dim = -1"),
    "broadcast": (ALONG_ROWS, "`chlo.broadcast_add` whose broadcast_dimensions are not the last"),
    "body_on_arrays": (BODY_ON_ARRAYS, "with a body that is not on scalars of its operands' types"),
    "body_on_wider": (BODY_ON_WIDER, "with a body that is not on scalars of its operands' types"),
}


def derived(text: str, pipeline: str) -> ir.Module:
    module = ir.Module.parse(text, _jax.context())
    run_pipeline(module, f"builtin.module({pipeline})")
    assert module.operation.verify()
    return module


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize("name", REFUSALS)
def test_a_form_without_a_rule_is_refused(name: str, mode: str) -> None:
    """Both modes raise, and say which form of which op has no rule."""
    text, words = REFUSALS[name]
    with pytest.raises(MissingRuleError) as caught:
        derived(text, mode)
    assert words in caught.value.message
    assert caught.value.message.startswith("no derivative")
    assert caught.value.where
    assert caught.value.do


def test_the_sum_of_an_unknown_number_of_elements_has_no_reverse_mode() -> None:
    """There is no telling how often to repeat its cotangent."""
    derived(DYNAMIC_SUM, "jvp")
    with pytest.raises(MissingRuleError, match=r"`stablehlo.reduce` with a dynamic shape"):
        derived(DYNAMIC_SUM, "vjp")


DRAWN_ON_DEVICES = """
sdy.mesh @mesh = <["i"=2]>
func.func public @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"i"}]>] out_shardings=[<@mesh, [{"i"}]>]
      manual_axes={"i"} (%a: tensor<2xf64>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f64>
    %one = stablehlo.constant dense<1.0> : tensor<f64>
    %shape = stablehlo.constant dense<2> : tensor<1xi64>
    %1 = stablehlo.rng %zero, %one, %shape, distribution = UNIFORM
      : (tensor<f64>, tensor<f64>, tensor<1xi64>) -> tensor<2xf64>
    %2 = stablehlo.multiply %a, %1 : tensor<2xf64>
    sdy.return %2 : tensor<2xf64>
  } : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}
"""


def test_what_every_device_draws_is_drawn_once() -> None:
    """The backward body has what the forward one drew, a row from each device: no other numbers."""
    derived(DRAWN_ON_DEVICES, "jvp")
    text = str(derived(DRAWN_ON_DEVICES, "vjp"))
    assert text.count("stablehlo.rng") == 1
    assert "-> (tensor<4xf64>, tensor<2x2xf64>)" in text


COMPUTED_SOURCE = """
func.func public @main(%x: tensor<2xf64>, %source: tensor<1xi32>) -> tensor<2xf64> {
  %0 = "stablehlo.collective_broadcast"(%x, %source) {
    replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, has_dynamic_root
  } : (tensor<2xf64>, tensor<1xi32>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}
"""
SEVERAL_BROADCAST = """
func.func public @main(%x: tensor<2xf64>, %y: tensor<3xf64>) -> (tensor<2xf64>, tensor<3xf64>) {
  %0:2 = "stablehlo.collective_broadcast"(%x, %y) {
    replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>
  } : (tensor<2xf64>, tensor<3xf64>) -> (tensor<2xf64>, tensor<3xf64>)
  return %0#0, %0#1 : tensor<2xf64>, tensor<3xf64>
}
"""


@pytest.mark.skipif(
    not hasattr(stablehlo.CollectiveBroadcastOp, "has_dynamic_root"),
    reason="there a broadcast has one operand, and names its device",
)
def test_a_broadcast_from_a_device_that_is_computed_has_no_reverse_mode() -> None:
    """Its transpose would have to know the device; one of several operands is one of each."""
    derived(COMPUTED_SOURCE, "jvp")
    with pytest.raises(MissingRuleError, match="broadcast` from a device that is computed"):
        derived(COMPUTED_SOURCE, "vjp")
    batch = derived(COMPUTED_SOURCE, "vmap{size=4 in-axes=0,none}")
    assert "(tensor<4x2xf64>, tensor<1xi32>) -> tensor<4x2xf64>" in str(batch)
    assert str(derived(SEVERAL_BROADCAST, "vjp")).count("stablehlo.collective_permute") == 4


DYNAMIC_DIFFERENCES = """
func.func public @main(%x: tensor<?x4xf64>, %init: tensor<f64>) -> tensor<?xf64> {
  %0 = stablehlo.reduce(%x init: %init) across dimensions = [1]
    : (tensor<?x4xf64>, tensor<f64>) -> tensor<?xf64>
    reducer(%a: tensor<f64>, %b: tensor<f64>) {
      %1 = stablehlo.subtract %a, %b : tensor<f64>
      stablehlo.return %1 : tensor<f64>
    }
  return %0 : tensor<?xf64>
}
"""

DYNAMIC_LARGEST = """
func.func public @main(%x: tensor<?x8xf64>) -> tensor<?x3xf64> {
  %0:2 = chlo.top_k(%x, k=3) : tensor<?x8xf64> -> (tensor<?x3xf64>, tensor<?x3xi32>)
  return %0#0 : tensor<?x3xf64>
}
"""

DYNAMIC_GROUPS = """
func.func public @main(
    %x: tensor<?x4xf64>, %w: tensor<3x4x5xf64>, %sizes: tensor<3xi64>) -> tensor<?x5xf64> {
  %0 = "chlo.ragged_dot"(%x, %w, %sizes) {
    ragged_dot_dimension_numbers = #chlo.ragged_dot<
      lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1],
      lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>
  } : (tensor<?x4xf64>, tensor<3x4x5xf64>, tensor<3xi64>) -> tensor<?x5xf64>
  return %0 : tensor<?x5xf64>
}
"""


DYNAMIC_PRODUCT = """
func.func public @main(%x: tensor<?x4xf64>, %init: tensor<f64>) -> tensor<4xf64> {
  %0 = stablehlo.reduce(%x init: %init) applies stablehlo.multiply across dimensions = [0]
    : (tensor<?x4xf64>, tensor<f64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}
"""

DYNAMIC_GATHER = """
func.func public @main(%x: tensor<?xf64>, %i: tensor<3x1xi32>) -> (tensor<3xf64>, tensor<?xf64>) {
  %0 = "stablehlo.gather"(%x, %i) {slice_sizes = array<i64: 1>,
    dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
      index_vector_dim = 1>} : (tensor<?xf64>, tensor<3x1xi32>) -> tensor<3xf64>
  return %0, %x : tensor<3xf64>, tensor<?xf64>
}
"""
DYNAMIC_SCATTER = SCATTER.replace("5xf64", "?xf64").replace("BODY", PRODUCT)
DYNAMIC_SCATTER = DYNAMIC_SCATTER.replace("multiply", "add")


@pytest.mark.parametrize("text", [DYNAMIC_GATHER, DYNAMIC_SCATTER], ids=["gather", "scatter"])
def test_which_indices_are_inside_of_a_dynamic_shape_is_not_known(text: str) -> None:
    """All of them were taken to be outside, so their cotangents were lost."""
    derived(text, "jvp")
    with pytest.raises(MissingRuleError, match="the largest index into an array of dynamic shape"):
        derived(text, "vjp")


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param(DYNAMIC_DIFFERENCES, "a reduction step by step", id="reduce"),
        pytest.param(DYNAMIC_PRODUCT, "a reduction step by step", id="product"),
        pytest.param(DYNAMIC_LARGEST, "a (reshape|constant)", id="top_k"),
        pytest.param(DYNAMIC_GROUPS, "an iota", id="ragged_dot"),
    ],
)
def test_what_needs_a_static_shape_is_refused(text: str, what: str, mode: str) -> None:
    """The formula of a derivative may use ops that the op itself does not need."""
    with pytest.raises(MissingRuleError, match=f"needs {what} of dynamic shape") as caught:
        derived(text, mode)
    assert "stablehlo-refine-shapes" in str(caught.value.do)


@pytest.mark.parametrize(
    ("what", "emit"),
    [
        ("a constant", lambda x: build.zeros(x.type)),
        ("a reshape", lambda x: build.reshape(x, (-1, 1, 4))),
        ("a broadcast", lambda x: build.broadcast_in_dim(x, (2, -1, 4), (1, 2))),
        ("a slice", lambda x: build.slice_(x, (0, 0), (-1, 2))),
        ("a padding", lambda x: build.pad(x, 0, (1, 0), (0, 0))),
        ("an iota", lambda x: build.iota(x.type, 0)),
    ],
)
def test_builders_whose_result_has_a_static_shape(what: str, emit: Any) -> None:
    text = "func.func @main(%x: tensor<?x4xf64>) { return }"
    module = ir.Module.parse(text, _jax.context())
    block = module.body.operations[0].regions[0].blocks[0]
    unknown = ir.Location.unknown(_jax.context())
    with (
        build.inserting(ir.InsertionPoint.at_block_begin(block), unknown),
        pytest.raises(MissingRuleError, match=f"needs {what} of dynamic shape"),
    ):
        emit(block.arguments[0])


COMPLEX_ARCSINE = """
func.func public @main(%x: tensor<?xcomplex<f64>>) -> tensor<?xcomplex<f64>> {
  %0 = chlo.asin %x : tensor<?xcomplex<f64>> -> tensor<?xcomplex<f64>>
  return %0 : tensor<?xcomplex<f64>>
}
"""


def test_complex_constants_of_a_dynamic_shape() -> None:
    text = str(derived(COMPLEX_ARCSINE, "jvp")).replace("?", "3")
    with jax.enable_x64(True):
        x, t = jnp.array([0.3 + 0.4j, -1.2 + 0.1j, 2.0 - 3.0j]), jnp.array([1.0, 2j, 1 - 1j])
        found = pullback_runtime.compile(text)(x, t)
        expected = jax.jvp(jnp.arcsin, (x,), (t,))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


HALF_REFINED = """
func.func public @main(%x: tensor<4xf64>, %y: tensor<?xf64>) -> tensor<?xf64> {
  %0 = stablehlo.multiply %x, %y : (tensor<4xf64>, tensor<?xf64>) -> tensor<?xf64>
  return %0 : tensor<?xf64>
}
"""


@pytest.mark.parametrize(
    ("wrt", "words"),
    [
        (0, r"type tensor<4xf64> whose cotangent has type tensor<\?xf64>"),
        (1, r"type tensor<\?xf64> whose cotangent has type tensor<4xf64>"),
    ],
)
def test_a_cotangent_has_the_shape_of_its_argument(wrt: int, words: str) -> None:
    """XLA would say that the types differ, of a function that nobody wrote."""
    derived(HALF_REFINED, "jvp")
    derived(HALF_REFINED, f"linearize{{wrt={wrt}}}")  # by forward mode
    for pipeline in (f"vjp{{wrt={wrt}}}", f"vjp{{wrt={wrt} split=true}}"):
        with pytest.raises(MissingRuleError, match=words) as caught:
            derived(HALF_REFINED, pipeline)
        assert "stablehlo-refine-shapes" in str(caught.value.do)


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
def test_a_custom_call_that_gives_integers_has_no_tangent(mode: str) -> None:
    """Nothing inexact comes out of it, so nothing is lost."""
    assert "my_kernel" in str(derived(CALL.replace("RESULT", "i32"), mode))


SORT = """
func.func public @main(%k: tensor<4xf64>, %x: tensor<4xf64>) -> tensor<4xf64> {
  %0:2 = "stablehlo.sort"(%k, %x) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
    %less = stablehlo.compare LT, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true}
    : (tensor<4xf64>, tensor<4xf64>) -> (tensor<4xf64>, tensor<4xf64>)
  return %0#1 : tensor<4xf64>
}
"""


RECURSION = """
func.func public @main(%x: tensor<f64>) -> tensor<f64> {
  %0 = func.call @f(%x) : (tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
func.func private @f(%x: tensor<f64>) -> tensor<f64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %more = stablehlo.compare GT, %x, %zero : (tensor<f64>, tensor<f64>) -> tensor<i1>
  %0 = "stablehlo.if"(%more) ({
    %y = stablehlo.subtract %x, %x : tensor<f64>
    %1 = func.call @f(%y) : (tensor<f64>) -> tensor<f64>
    stablehlo.return %1 : tensor<f64>
  }, {
    stablehlo.return %x : tensor<f64>
  }) : (tensor<i1>) -> tensor<f64>
  return %0 : tensor<f64>
}
"""


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize("name", ["f", "main"])
def test_a_function_that_calls_itself(name: str, mode: str) -> None:
    """Also the entry, which is rewritten where it stands."""
    with pytest.raises(NotDifferentiableError, match=rf"`@{name}` calls itself"):
        derived(RECURSION.replace("call @f", f"call @{name}"), mode)


CALL_OF_UNKNOWN = """
func.func @main(%x: tensor<f64>) -> tensor<f64> {
  %0 = func.call @f(%x) : (tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
func.func private @f(%x: tensor<f64>) -> tensor<f64>
"""
RULE_UNKNOWN = """
func.func @main(%x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {decomposition = @p,
    composite_attributes = {fwd = @f, bwd = @b}} : (tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
func.func private @p(%x: tensor<f64>) -> tensor<f64>
func.func private @f(%x: tensor<f64>) -> tensor<f64>
func.func private @b(%ct: tensor<f64>) -> tensor<f64>
"""
BLOCKS = """
func.func @main(%x: tensor<f64>) -> tensor<f64> {
  "cf.br"(%x)[^bb1] : (tensor<f64>) -> ()
^bb1(%y: tensor<f64>):
  return %y : tensor<f64>
}
"""
PASSES = ("jvp", "vjp", "vjp{split=true}", "linearize", "transpose")


@pytest.mark.parametrize("stage", PASSES)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CALL_OF_UNKNOWN, "`@f` has no body"),
        (RULE_UNKNOWN, "has no body"),
        ("func.func private @main(tensor<f64>)", "`@main` has no body"),
        (BLOCKS, "`@main` has 2 blocks"),
    ],
)
def test_a_function_whose_body_is_not_one_block(text: str, words: str, stage: str) -> None:
    with pytest.raises(NotDifferentiableError) as caught:
        derived(text, stage)
    assert caught.value.message.endswith(words)
    assert caught.value.where
    assert caught.value.do


RETURNS_FLOATS = """
func.func private @f() -> TYPE
func.func @main(%x: tensor<f64>) -> TYPE {
  %0 = func.call @f() : () -> TYPE
  return %0 : TYPE
}
"""
PAIR = "tuple<tensor<f64>, tensor<i32>>"


@pytest.mark.parametrize("stage", PASSES)
@pytest.mark.parametrize("type", ["f64", "tensor<*xf64>", PAIR, f"tuple<{PAIR}>"])
@pytest.mark.parametrize(
    "text",
    [
        "func.func @main(%a: TYPE, %x: tensor<f64>) -> tensor<f64> { return %x : tensor<f64> }",
        RETURNS_FLOATS,
    ],
)
def test_floats_without_a_place_for_tangents(text: str, type: str, stage: str) -> None:
    """Their derivative would be lost, and zero stand in its place."""
    with pytest.raises(
        NotDifferentiableError, match="in which no derivative has a place"
    ) as caught:
        derived(text.replace("TYPE", type), stage)
    assert caught.value.where


CARRIES_A_TOKEN = """
func.func @main(%x: tensor<f64>, %n: tensor<i32>) -> tensor<f64> {
  %first = stablehlo.create_token : !stablehlo.token
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %token = %first, %c = %x)
      : tensor<i32>, !stablehlo.token, tensor<f64>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %next = stablehlo.after_all %token : !stablehlo.token
    %s = stablehlo.sine %c : tensor<f64>
    stablehlo.return %j, %next, %s : tensor<i32>, !stablehlo.token, tensor<f64>
  }
  return %r#2 : tensor<f64>
}
"""


def test_a_loop_of_unknown_length_keeps_no_tokens() -> None:
    derived(CARRIES_A_TOKEN, "jvp")
    with pytest.raises(MissingRuleError, match="keep a value of type !stablehlo") as caught:
        derived(CARRIES_A_TOKEN, "vjp")
    assert caught.value.where


IN_A_BODY = {
    "part": """%1 = "stablehlo.dynamic_update_slice"(%a, %a)
      : (tensor<f64>, tensor<f64>) -> tensor<f64>""",
    "array": """%v = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f64>) -> tensor<2xf64>
      %w = stablehlo.slice %v [1:2] : (tensor<2xf64>) -> tensor<1xf64>
      %1 = stablehlo.reshape %w : (tensor<1xf64>) -> tensor<f64>""",
    "constant": """%v = stablehlo.constant dense<[2.0, 3.0]> : tensor<2xf64>
      %w = stablehlo.slice %v [1:2] : (tensor<2xf64>) -> tensor<1xf64>
      %s = stablehlo.reshape %w : (tensor<1xf64>) -> tensor<f64>
      %1 = stablehlo.multiply %a, %s : tensor<f64>""",
}


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize("name", IN_A_BODY)
def test_a_body_does_to_each_element_what_it_does_to_arrays(name: str, mode: str) -> None:
    text = f"""func.func @main(%x: tensor<3xf64>) -> tensor<3xf64> {{
      %0 = "stablehlo.map"(%x) ({{
      ^bb0(%a: tensor<f64>):
        {IN_A_BODY[name]}
        stablehlo.return %1 : tensor<f64>
      }}) {{dimensions = array<i64: 0>}} : (tensor<3xf64>) -> tensor<3xf64>
      return %0 : tensor<3xf64>
    }}"""
    with pytest.raises(MissingRuleError, match="in the body of a reduction or map"):
        derived(text, mode)


USES_FROM_OUTSIDE = {
    "map": """%0 = "stablehlo.map"(%x) ({
      ^bb0(%a: tensor<f64>):
        %1 = stablehlo.multiply %a, %c : tensor<f64>
        stablehlo.return %1 : tensor<f64>
      }) {dimensions = array<i64: 0>} : (tensor<3xf64>) -> tensor<3xf64>""",
    "reduce": """%z = stablehlo.constant dense<0.0> : tensor<f64>
      %s = "stablehlo.reduce"(%x, %z) ({
      ^bb0(%a: tensor<f64>, %b: tensor<f64>):
        %1 = stablehlo.add %a, %c : tensor<f64>
        stablehlo.return %1 : tensor<f64>
      }) {dimensions = array<i64: 0>} : (tensor<3xf64>, tensor<f64>) -> tensor<f64>
      %0 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f64>) -> tensor<3xf64>""",
    "scatter": """%i = stablehlo.constant dense<0> : tensor<1x1xi32>
      %u = stablehlo.constant dense<0.0> : tensor<1xf64>
      %0 = "stablehlo.scatter"(%x, %i, %u) ({
      ^bb0(%a: tensor<f64>, %b: tensor<f64>):
        stablehlo.return %c : tensor<f64>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
        : (tensor<3xf64>, tensor<1x1xi32>, tensor<1xf64>) -> tensor<3xf64>""",
}


@pytest.mark.parametrize("pass_name", ["jvp", "vjp"])
@pytest.mark.parametrize("wrt", ["0,1", "0", "1"])
@pytest.mark.parametrize("name", USES_FROM_OUTSIDE)
def test_a_body_that_uses_a_value_from_outside(name: str, wrt: str, pass_name: str) -> None:
    """No operand tells that it does: the derivative was zero."""
    text = f"""func.func @main(%x: tensor<3xf64>, %c: tensor<f64>) -> tensor<3xf64> {{
      {USES_FROM_OUTSIDE[name]}
      return %0 : tensor<3xf64>
    }}"""
    with pytest.raises(MissingRuleError, match="on a value from outside of its body"):
        derived(text, f"{pass_name}{{wrt={wrt}}}")


REFUSED_WITHIN = """
import gc
from pullback import _jax
from pullback.errors import MissingRuleError
from pullback._jax import ir
from pullback.dialect import build
from pullback.passes.manager import run_pipeline

NUMBERS = "tensor<4xf32>"
TEXT = f"func.func @main(%n: {NUMBERS}, %x: {NUMBERS}) -> {NUMBERS} {{ \\n" \\
  f"%0 = chlo.broadcast_polygamma %n, %x : ({NUMBERS}, {NUMBERS}) -> {NUMBERS} \\n" \\
  f"return %0 : {NUMBERS} }}"
for _ in range(20):
    module = ir.Module.parse(TEXT, _jax.context())
    try:
        run_pipeline(module, "vjp")
    except MissingRuleError:
        gc.collect()
    else:
        raise SystemExit("it was not refused")
"""


def test_a_refusal_within_an_expansion_leaves_memory_whole() -> None:
    """What had moved out of the expansion used arguments that were gone: the process died."""
    subprocess.run([sys.executable, "-c", REFUSED_WITHIN], check=True)


def test_a_sort_is_linear_in_what_it_carries_along() -> None:
    """Transposing it undoes the permutation."""
    keys, ct = np.array([3.0, 1.0, 4.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0])
    module = derived(SORT, "transpose{wrt=1}")
    (found,) = pullback_runtime.compile(module)(keys, ct)
    np.testing.assert_array_equal(found, [3.0, 1.0, 4.0, 2.0])


def test_a_sort_is_not_linear_in_its_keys() -> None:
    with pytest.raises(NotLinearError, match=r"`stablehlo.sort` is not linear"):
        derived(SORT.replace("return %0#1", "return %0#0"), "transpose{wrt=0}")


CONVOLUTION = """
func.func public @main(%x: tensor<1x2x6xf64>, %k: tensor<3x2x2xf64>) -> tensor<1x3x3xf64> {
  %padding = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi32>
  %0 = "stablehlo.dynamic_conv"(%x, %k, %padding) {
    batch_group_count = 1 : i64, feature_group_count = 1 : i64,
    dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>,
    window_strides = array<i64: 2>}
    : (tensor<1x2x6xf64>, tensor<3x2x2xf64>, tensor<1x2xi32>) -> tensor<1x3x3xf64>
  return %0 : tensor<1x3x3xf64>
}
"""
STATIC = "func.func(stablehlo-canonicalize-dynamism)"


def test_dynamic_convolution() -> None:
    """XLA runs it in its static form only, so the dynamic one is canonicalized after deriving."""
    rng = np.random.default_rng(0)
    x, dx = (rng.normal(size=(1, 2, 6)) for _ in range(2))
    k, dk = (rng.normal(size=(3, 2, 2)) for _ in range(2))
    ct = rng.normal(size=(1, 3, 3))

    def convolve(x: jax.Array, k: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, k, (2,), ((1, 0),))

    _, dy = jax.jvp(convolve, (x, k), (dx, dk))
    forward = pullback_runtime.compile(derived(CONVOLUTION, f"jvp,{STATIC}"))(x, k, dx, dk)
    np.testing.assert_allclose(forward[1], dy, rtol=1e-12, atol=1e-12)
    cts = jax.vjp(convolve, x, k)[1](jnp.asarray(ct))
    backward = pullback_runtime.compile(derived(CONVOLUTION, f"vjp,{STATIC}"))(x, k, ct)
    for found, expected in zip(backward[1:], cts, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stage", ["jvp{wrt=0,0}", "transpose{wrt=0,0}", "vjp{outs=0,0}"])
def test_a_position_named_twice(stage: str) -> None:
    """There is one tangent or cotangent for it, not the two that the caller counts on."""
    with pytest.raises(NotDifferentiableError, match=r"of `@main` named twice: 0,0"):
        derived(SORT, stage)


@pytest.mark.parametrize("stage", ["jvp{wrt=1,0}", "vjp{wrt=1,0}", "vjp{split=true wrt=1,0}"])
def test_positions_out_of_order(stage: str) -> None:
    """The derivatives come in the order of the arguments, not in the one that is asked for."""
    with pytest.raises(NotDifferentiableError, match=r"arguments of `@main` out of order: 1,0"):
        derived(CONVOLUTION, stage)


TWO = """
func.func public @main(%x: tensor<f64>) -> (tensor<f64>, tensor<f64>) {
  %0 = stablehlo.sine %x : tensor<f64>
  return %0, %x : tensor<f64>, tensor<f64>
}
"""


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("vjp{unit-cotangent=true}", "not for 2 results"),
        ("vjp{unit-cotangent=true outs=}", "not for 0 results"),
        ("vjp{unit-cotangent=true split=true}", "not for split=true"),
    ],
)
def test_a_cotangent_of_one_is_for_one_result(stage: str, words: str) -> None:
    """The sum of the gradients of several is none that anybody asked for."""
    with pytest.raises(NotDifferentiableError, match=words):
        derived(TWO, stage)


ONE_RULE = """
func.func private @f(%c: tensor<f64>, %x: tensor<f64>) -> tensor<f64> { return %x : tensor<f64> }
func.func private @g(%c: tensor<f64>, %x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.multiply %x, %c : tensor<f64>
  return %0 : tensor<f64>
}
func.func private @f.jvp(%c: tensor<f64>, %x: tensor<f64>, %dx: tensor<f64>)
    -> (tensor<f64>, tensor<f64>) {
  return %x, %dx : tensor<f64>, tensor<f64>
}
func.func public @main(%c: tensor<f64>, %x: tensor<f64>) -> tensor<f64> {
  %0 = stablehlo.composite "pullback.custom_jvp_call" %c, %x {
    decomposition = @FIRST, composite_attributes = {closed_over = 1 : i64, jvp.01 = @f.jvp}
  } : (tensor<f64>, tensor<f64>) -> tensor<f64>
  %1 = stablehlo.composite "pullback.custom_jvp_call" %c, %0 {
    decomposition = @SECOND, composite_attributes = {closed_over = 1 : i64, jvp.01 = @f.jvp}
  } : (tensor<f64>, tensor<f64>) -> tensor<f64>
  return %1 : tensor<f64>
}
"""


@pytest.mark.parametrize("stage", ["jvp", "vjp"])
@pytest.mark.parametrize(("first", "second"), ["fg", "gf"])
def test_a_rule_does_not_hide_what_another_function_closes_over(
    stage: str, first: str, second: str
) -> None:
    """The results of one do not depend on what it closes over, those of the other do."""
    text = ONE_RULE.replace("FIRST", first).replace("SECOND", second)
    with pytest.raises(MissingRuleError, match="`g` has a custom_jvp rule and closes over"):
        derived(text, stage)


CLOSES_OVER_ALL = """
func.func private @f(%c: tensor<f64>, %n: tensor<i32>) -> tensor<f64> {
  %0 = stablehlo.convert %n : (tensor<i32>) -> tensor<f64>
  return %0 : tensor<f64>
}
func.func public @main(%c: tensor<f64>, %n: tensor<i32>) -> tensor<f64> {
  %0 = stablehlo.composite "pullback.CALL" %c, %n {
    decomposition = @f, composite_attributes = {closed_over = 1 : i64}
  } : (tensor<f64>, tensor<i32>) -> tensor<f64>
  %1 = stablehlo.multiply %0, %c : tensor<f64>
  return %1 : tensor<f64>
}
"""


@pytest.mark.parametrize("stage", ["jvp", "vjp"])
@pytest.mark.parametrize("call", ["custom_jvp_call", "custom_vjp_call"])
def test_no_rule_is_asked_for_where_a_call_only_closes_over_what_moves(
    stage: str, call: str
) -> None:
    """There was an IndexError for one, and an error that no rule is there for the other."""
    module = derived(CLOSES_OVER_ALL.replace("CALL", call), stage)
    with jax.enable_x64(True):
        found = pullback_runtime.compile(module)(2.0, np.int32(3), 1.0)
    assert [float(v) for v in found] == [6.0, 3.0]


RUN_AGAIN = """
func.func public @main(%x: tensor<f64>) -> tensor<f64> {
  %0 = call @f(%x) : (tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
func.func private @f(%x: tensor<f64>) -> tensor<f64> attributes {pullback.checkpoint} {
  %0 = stablehlo.custom_call @TARGET(%x) {has_side_effect = true} : (tensor<f64>) -> tensor<KIND>
  %1 = stablehlo.convert %0 : (tensor<KIND>) -> tensor<f64>
  %2 = stablehlo.sine %x : tensor<f64>
  %3 = stablehlo.multiply %1, %2 : tensor<f64>
  return %3 : tensor<f64>
}
"""


def test_what_has_a_side_effect_is_not_run_again_for_its_result() -> None:
    """It was, if it was none of JAX's callbacks: a random number was drawn twice."""
    text = RUN_AGAIN.replace("TARGET", "my_random").replace("KIND", "i32")
    with pytest.raises(MissingRuleError, match="`my_random` in it: reverse mode runs it again"):
        derived(text, "vjp")


@pytest.mark.parametrize(
    ("target", "kind"), [("annotate_device_placement", "f64"), ("tpu_custom_call", "i32")]
)
def test_what_xla_is_to_leave_alone_is_no_side_effect(target: str, kind: str) -> None:
    """JAX says so of places in memory, and of kernels that XLA would merge."""
    derived(RUN_AGAIN.replace("TARGET", target).replace("KIND", kind), "vjp")


HALF_REFINED_CALL = """
func.func public @main(%x: tensor<3xf64>, %y: tensor<?xf64>) -> tensor<?xf64> {
  %0 = stablehlo.add %x, %y : (tensor<3xf64>, tensor<?xf64>) -> tensor<?xf64>
  %1 = call @f(%0) : (tensor<?xf64>) -> tensor<?xf64>
  return %1 : tensor<?xf64>
}
func.func private @f(%0: tensor<?xf64>) -> tensor<?xf64> {
  STEPS
  return %30 : tensor<?xf64>
}
"""


def test_a_tangent_has_the_shape_that_a_function_takes() -> None:
    """One that is too long to be inlined: the call of it did not verify."""
    steps = (f"%{i + 1} = stablehlo.sine %{i} : tensor<?xf64>" for i in range(30))
    text = HALF_REFINED_CALL.replace("STEPS", "\n  ".join(steps))
    derived(text, "jvp{wrt=1}")
    with pytest.raises(MissingRuleError, match=r"a tensor<3xf64> where it takes a ten.*\?") as e:
        derived(text, "jvp{wrt=0}")
    assert "stablehlo-refine-shapes" in str(e.value.do)
