"""CHLO ops in files: as composites that are the op, that are another thing, and as loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import pullback as pb
from pullback import artifact
from pullback.errors import MissingRuleError
from tests.rounding import FUNCTION, close

SMALLEST = """
func.func private @smallest(%x: tensor<4xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %less = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.slice %0 [0:2] : (tensor<4xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
func.func public @main(%x: tensor<4xf32>) -> tensor<2xf32> {
  %0 = stablehlo.composite "NAME" %x {composite_attributes = {ATTRIBUTES},
    decomposition = @smallest} : (tensor<4xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("chlo.top_k", "k = 2 : i64, largest = false"),
        ("chlo.top_k", "k = 2 : i32"),
        ("chlo.top_k", ""),
        ("chlo.constant", ""),
        ("chlo.constant_like", ""),
        ("chlo.ragged_dot", ""),
        ("chlo.scan", "dimension = 0 : i64"),
        ("chlo.erf", "approximate = true"),
        ("chlo.zeta", ""),
        ("stablehlo.sort", ""),
    ],
)
def test_what_has_the_name_of_an_op_and_is_not_the_op(name, attributes):
    text = SMALLEST.replace("NAME", name).replace("ATTRIBUTES", attributes)
    program = pb.load(text.encode())
    x = jnp.array([3.0, 1.0, 4.0, 2.0])
    for each in (program, pb.load(artifact.serialize(program))):
        assert each(x).tolist() == [1.0, 2.0]
        _, (ct,) = each.vjp()(x, jnp.array([5.0, 7.0]))
        assert ct.tolist() == [0.0, 5.0, 0.0, 7.0]
        assert each.jvp()(x, x + 1)[1].tolist() == [2.0, 3.0]
        assert each.vmap(axis_size=2)(jnp.stack([x, x]))[1].tolist() == [1.0, 2.0]


DOUBLED = """
func.func private @doubled(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %x, %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.composite "chlo.erf" %x {composite_attributes = {ATTRIBUTES},
    decomposition = @doubled} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
"""


@pytest.mark.parametrize(
    ("attributes", "expected"), [("approximate = true", 1.0), ("", jax.lax.erf(0.5))]
)
def test_attributes_that_an_op_does_not_have_make_another_function(attributes, expected):
    program = pb.load(DOUBLED.replace("ATTRIBUTES", attributes).encode())
    close(program(0.5), np.float32(expected), ops=FUNCTION)


@pytest.mark.parametrize("platforms", [("cpu",), ("cpu", "tpu")])
def test_a_ragged_product_that_jax_exported(platforms):
    """For a TPU it is a composite, whose attributes are not those of the op."""
    a, b, sizes = jnp.ones((4, 6)), jnp.ones((2, 6, 3)), jnp.array([2, 2], jnp.int32)
    exported = export.export(jax.jit(jax.lax.ragged_dot), platforms=platforms)(a, b, sizes)
    program = pb.load(bytes(exported.serialize()))
    assert (program(a, b, sizes) == 6.0).all()
    _, (da, db) = program.vjp(wrt=(0, 1))(a, b, sizes, jnp.ones((4, 3)))
    assert (da == 3.0).all()
    assert (db == 2.0).all()


@pytest.mark.parametrize("platforms", [("cpu",), ("cpu", "cuda")])
def test_a_cumulative_sum_that_jax_exported(platforms):
    """For a GPU, jax 0.12 writes a composite with a region."""
    x = jnp.arange(4.0)
    exported = export.export(jax.jit(jnp.cumsum), platforms=platforms)(x)
    program = pb.load(bytes(exported.serialize()))
    assert program(x).tolist() == [0.0, 1.0, 3.0, 6.0]
    _, (ct,) = program.vjp()(x, jnp.ones(4))
    assert ct.tolist() == [4.0, 3.0, 2.0, 1.0]
    assert program.vmap(axis_size=2)(jnp.stack([x, x]))[1].tolist() == [0.0, 1.0, 3.0, 6.0]


NAMED = """
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.composite "acme.running_sum" %x
      {composite_attributes = {dimension = 0 : i64}, decomposition = @sum}
      : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @sum(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_a_batch_of_a_composite_is_not_called_by_its_name():
    """Who knows the name would sum over the batch, as XLA does for GPUs in `chlo.scan`."""
    program = pb.load(NAMED.encode())
    assert "acme" in str(program)
    batch = program.vmap(axis_size=4)
    assert "acme" not in str(batch)
    x = jnp.arange(16.0).reshape(4, 4)
    np.testing.assert_allclose(batch(x), jnp.sin(x), rtol=1e-6)


SCAN = """"chlo.scan"(ARGUMENTS) <{dimension = 0 : i64, is_reverse = false,
    operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%x: TYPE, %s: TYPE):
BODY
    stablehlo.return %1, %1 : TYPE, TYPE
  }) : (MANY, TYPE) -> (MANY, TYPE)
"""


def scan(values: str, item: str, many: str, body: str) -> str:
    filled = SCAN.replace("ARGUMENTS", values).replace("BODY", body)
    return filled.replace("TYPE", item).replace("MANY", many)


def test_scans_are_loops_in_a_file():
    """One in the body of another, too: s + each partial sum of a row."""
    inner = scan("%x, %s0", "tensor<f32>", "tensor<2xf32>", "    %1 = stablehlo.add %s, %x : TYPE")
    inner = inner.replace("%s:", "%t:").replace("(%x:", "(%y:").replace("%s, %x :", "%t, %y :")
    body = f"""    %s0 = stablehlo.constant dense<0.0> : tensor<f32>
    %rows:2 = {inner}
    %1 = stablehlo.add %s, %rows#0 : tensor<2xf32>"""
    outer = scan("%a, %c", "tensor<2xf32>", "tensor<3x2xf32>", body)
    program = pb.load(
        f"""
func.func public @main(%a: tensor<3x2xf32>, %c: tensor<2xf32>) -> tensor<3x2xf32> {{
  %0:2 = {outer}
  return %0#0 : tensor<3x2xf32>
}}
""".encode()
    )
    a, c = np.arange(6, dtype="f").reshape(3, 2), np.ones(2, "f")
    expected = np.cumsum(np.cumsum(a, 1), 0) + c
    for each in (program, pb.load(artifact.serialize(program))):
        np.testing.assert_allclose(each(a, c), expected)
        da, dc = each.vjp()(a, c, np.ones((3, 2), "f"))[1]
        np.testing.assert_allclose(da, [[6, 3], [4, 2], [2, 1]])
        np.testing.assert_allclose(dc, [3, 3])


CALLED = """
func.func public @main(%x: tensor<4xf32>) -> RESULT {
  %0COUNT = stablehlo.custom_call @TARGET(%x) {mhlo.attributes = {ATTRIBUTES},
    mhlo.version = 1 : i64MORE} : (tensor<4xf32>) -> TYPES
  return %0 : RESULT
}
"""


def called(target, **words):
    text = CALLED.replace("TARGET", target)
    words = {"COUNT": "", "ATTRIBUTES": "", "MORE": "", "RESULT": "tensor<4xf32>", **words}
    words.setdefault("TYPES", words["RESULT"])
    for word, chosen in words.items():
        text = text.replace(word, chosen)
    return pb.load(text.replace("%0 :", "%0#0 :" if words["COUNT"] else "%0 :").encode())


@pytest.mark.parametrize(
    ("target", "function"),
    [
        ("acos", jnp.arccos),
        ("acosh", jnp.arccosh),
        ("asin", jnp.arcsin),
        ("asinh", jnp.arcsinh),
        ("atanh", jnp.arctanh),
        ("cosh", jnp.cosh),
        ("erf", jax.scipy.special.erf),
        ("sinh", jnp.sinh),
        ("tan", jnp.tan),
    ],
)
def test_an_op_that_xla_writes_as_a_call(target, function):
    """PyTorch/XLA exports gelu with `mhlo.erf`."""
    program = called(f"mhlo.{target}")
    x = jnp.array([0.1, 0.5, 0.3, 0.9]) + (target == "acosh")
    for each in (program, pb.load(artifact.serialize(program))):
        np.testing.assert_allclose(each(x), function(x), rtol=1e-6)
        for ours, theirs in zip(each.jvp()(x, x), jax.jvp(function, (x,), (x,)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def top_k(largest="true", more=""):
    return called(
        "mhlo.topk",
        COUNT=":2",
        ATTRIBUTES=f"k = 2 : i64, largest = {largest}",
        MORE=more,
        RESULT="tensor<2xf32>",
        TYPES="(tensor<2xf32>, tensor<2xi32>)",
    )


def test_the_largest_elements_as_xla_writes_them():
    x = jnp.array([3.0, 1.0, 4.0, 2.0])
    explicit = top_k(more=', backend_config = "", has_side_effect = false, api_version = 1 : i32')
    for each in (top_k(), explicit, pb.load(artifact.serialize(top_k()))):
        assert each(x).tolist() == [4.0, 3.0]
        _, (ct,) = each.vjp()(x, jnp.array([5.0, 7.0]))
        assert ct.tolist() == [7.0, 0.0, 5.0, 0.0]


@pytest.mark.parametrize(
    "program",
    [
        lambda: top_k("false"),
        lambda: top_k(more=', backend_config = "{}"'),
        lambda: top_k(more=", mhlo.backend_config = {sorted = true}"),
        lambda: called("mhlo.erf", ATTRIBUTES="fast = true"),
        lambda: called("mhlo.lgamma"),
    ],
)
def test_a_call_that_says_more_than_the_op(program):
    with pytest.raises(MissingRuleError, match="custom_call` @mhlo"):
        program().jvp()
