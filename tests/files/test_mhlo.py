"""Modules of TensorFlow and PyTorch, with ops of MHLO as XLA writes them, and of `arith`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb
import pullback_runtime as runtime
from pullback import artifact
from pullback_runtime._jax import ir
from pullback_runtime.ir import _mhlo, _module

FOLDER = Path(__file__).parent
MODELS = sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.json"))
"""What the framework itself gives is beside these."""


# --------------------------------------------------------- of TensorFlow and of PyTorch


def said(name):
    """The arguments, and what the framework itself gives; no gradient is None."""
    found = json.loads((FOLDER / f"{name}.json").read_text())
    arguments = [np.asarray(each, np.float32) for each in found["arguments"]]
    return arguments, found["value"], found["gradients"]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_framework(name):
    arguments, value, gradients = said(name)
    program = pb.load(FOLDER / f"{name}.mlir")
    for each in (program, pb.load(artifact.serialize(program))):
        np.testing.assert_allclose(each(*arguments), value, rtol=1e-5)
        found = each.grad(tuple(range(len(arguments))))(*arguments)
        for ours, theirs in zip(found, gradients, strict=True):
            if theirs is not None:
                np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_runtime_computes_what_the_framework_does(name):
    arguments, value, _ = said(name)
    np.testing.assert_allclose(runtime.load(FOLDER / f"{name}.mlir")(*arguments), value, rtol=1e-5)


def test_a_second_derivative():
    (x,), _, _ = said("tensorflow/erf")
    program = pb.load(FOLDER / "tensorflow/erf.mlir")
    weights = np.sin(1.0 + np.arange(4)).astype(np.float32)
    expected = jax.grad(
        lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(weights * x * lax.erf(x)))(x) ** 2)
    )(x)
    found = pb.grad(lambda x: jnp.sum(jax.grad(program)(x) ** 2))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_command_line(tmp_path):
    from click.testing import CliRunner

    from pullback_cli import main

    path = FOLDER / "tensorflow/erf.mlir"
    for command in (["derive", "--grad", path], ["opt", "--vjp", path]):
        result = CliRunner().invoke(main, list(map(str, command)))
        assert result.exit_code == 0
        assert "mhlo.erf" not in result.stdout


# ------------------------------------------------------------------------- each op


X = np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(4, 4)
IMAGE = X.reshape(1, 4, 4, 1)


def pooled(x):
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")


def convolved(x):
    kernel = jnp.ones((2, 2, 1, 1))
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


FUNCTIONS = {
    "product": (lambda x: jnp.sum(jnp.tanh(x @ x.T)), X),
    "convolution": (convolved, IMAGE),
    "gather": (lambda x: x[jnp.array([1, 0])], X),
    "scatter": (lambda x: jnp.asarray(x).at[jnp.array([1, 0])].add(1.0), X),
    "sort": (jnp.sort, X),
    "while": (lambda x: lax.while_loop(lambda y: jnp.sum(y) < 99, lambda y: y * 2, x), X),
    "case": (lambda x: lax.cond(x[0, 0] > 1, jnp.sin, jnp.cos, x), X),
    "scan": (lambda x: lax.scan(lambda c, y: (c + y, c), jnp.zeros(4), x), X),
    "window": (pooled, IMAGE),
    "its transpose": (jax.grad(lambda x: jnp.sum(pooled(x))), IMAGE),
    "fft": (jnp.fft.fft, X),
    "bits": (lambda x: x + jax.random.normal(jax.random.key(0, impl="rbg"), x.shape), X),
    "custom call": (lambda x: lax.linalg.triangular_solve(x, x), X),
    "pad": (lambda x: jnp.flip(jnp.pad(x, 2), 0)[1:3], X),
    "slice": (
        lambda x: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (1, 1), (2, 2)), (0, 0)),
        X,
    ),
    "select": (lambda x: jnp.where(x > 0.5, x, 0).astype(jnp.bfloat16), X),
    "concatenate": (lambda x: jnp.concatenate([x, x], 1).reshape(2, 16).transpose(), X),
    "complex": (lambda x: jnp.abs(lax.complex(x, x)), X),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.int32) ^ 3, X),
    "constants": (lambda x: x + np.arange(4) + np.array([0.0, 1.0, 0.0, 1.0]), X),
}


def in_mhlo(module):
    """The generic text of a module in MHLO, which has lists of numbers as tensors."""

    def as_tensor(found):
        numbers = (found[2] or "").strip()
        count = len(numbers.split(",")) if numbers else 0
        inside = f"[{numbers}]" if count else ""
        return f"dense<{inside}> : tensor<{count}x{found[1]}>"

    text = module.operation.get_asm(print_generic_op_form=True)
    text = re.sub(r'"stablehlo\.(\w+)"', r'"mhlo.\1"', text)
    text = re.sub(r"#stablehlo<(rng_algorithm) (\w+)>", r"#mhlo.\1<\2>", text)
    text = re.sub(r"#stablehlo\b", "#mhlo", text)
    return re.sub(r"array<(i64|i1)(?::([^>]*))?>", as_tensor, text)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_module_of_mhlo_is_that_of_stablehlo(name):
    function, x = FUNCTIONS[name]
    module = _module.parse(jax.jit(function).lower(x).as_text().encode())
    text = in_mhlo(module)
    assert '"mhlo.' in text
    assert str(_module.parse(text.encode())) == str(module)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
        *map(jax.tree.leaves, (pb.load(text.encode())(x), function(x))),
    )


UNARY = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atanh": jnp.arctanh,
    "cosh": jnp.cosh,
    "erf": lax.erf,
    "sinh": jnp.sinh,
    "tan": jnp.tan,
}


@pytest.mark.parametrize("name", UNARY)
def test_an_op_that_stablehlo_has_not(name):
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %0 = mhlo.{name} %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }}"""
    x = X[1] + (name == "acosh")
    expected = jax.jvp(UNARY[name], (x,), (x,))
    for program in (pb.load(text.encode()), pb.load(artifact.serialize(pb.load(text.encode())))):
        for ours, theirs in zip(program.jvp()(x, x), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(runtime.load(text.encode())(x), expected[0], rtol=1e-6)


TOP_K = """func.func @main(%x: tensor<4xf32>) -> tensor<2xf32> {
  %0:2 = mhlo.topk(%x, k = 2, largest = LARGEST) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)
  return %0#0 : tensor<2xf32>
}"""


def test_the_largest_elements():
    x = np.array([3.0, 1.0, 4.0, 2.0], np.float32)
    program = pb.load(TOP_K.replace("LARGEST", "true").encode())
    assert program(x).tolist() == [4.0, 3.0]
    assert program.vjp()(x, np.array([5.0, 7.0], np.float32))[1][0].tolist() == [7, 0, 5, 0]


@pytest.mark.parametrize(
    "op",
    [
        '%0 = "mhlo.stochastic_convert"(%x, %i) '
        ": (tensor<4xf32>, tensor<4xui32>) -> tensor<4xbf16>",
        "%0:2 = mhlo.topk(%x, k = 4, largest = false) "
        ": tensor<4xf32> -> (tensor<4xf32>, tensor<4xi32>)",
    ],
    ids=["no such op", "says more"],
)
def test_what_has_no_counterpart_stays_and_has_no_derivative(op):
    result = re.search(r"-> \(?(tensor<\w+>)", op)[1]
    text = f"""func.func @main(%x: tensor<4xf32>, %i: tensor<4xui32>) -> {result} {{
      {op}
      return {"%0#0" if ":2" in op else "%0"} : {result}
    }}"""
    program = pb.load(text.encode())
    with pytest.raises(pb.MissingRuleError, match=r"no derivative rule for `mhlo\."):
        program.jvp(wrt=0)


def test_what_ends_an_op_without_a_counterpart_stays():
    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = "mhlo.fusion"(%x) ({
      ^bb0(%y: tensor<f32>):
        %1 = mhlo.erf %y : tensor<f32>
        "mhlo.return"(%1) : (tensor<f32>) -> ()
      }) {fusion_kind = #mhlo<fusion_kind kLoop>} : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }"""
    module = str(_module.parse(text.encode()))
    assert "mhlo.fusion" in module
    assert "mhlo.return" in module
    assert "chlo.erf" in module


def test_names_of_attributes_are_no_ops():
    for text in (b"module attributes {mhlo.num_partitions = 1 : i32}", b"mhlo.sharding = 3"):
        assert not _mhlo.may_be_in(text)
    for text in (b"%0 = mhlo.erf %x", b'"mhlo.erf"(%x)', b"mhlo.xla.rng_get (%x)"):
        assert _mhlo.may_be_in(text)


@pytest.mark.parametrize("op", ["custom_call", "infeed"])
def test_calls_in_mhlo_are_looked_at_as_well(op):
    """Also where they say what StableHLO's cannot say."""
    calls = {
        "custom_call": '%0 = "mhlo.custom_call"(%x) {call_target_name = "TARGET", '
        "custom_call_schedule = #mhlo<custom_call_schedule EARLIEST>} "
        ": (tensor<4xf32>) -> tensor<4xf32>",
        "infeed": '%t = "mhlo.create_token"() : () -> !mhlo.token\n%0:2 = "mhlo.infeed"(%t) '
        '{infeed_config = ""} : (!mhlo.token) -> (tensor<4xf32>, !mhlo.token)',
    }
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      {calls[op]}
      return {"%0#0" if op == "infeed" else "%0"} : tensor<4xf32>
    }}""".replace("TARGET", "xla_ffi_python_cpu_callback")
    for load in (pb.load, runtime.load):
        with pytest.raises(runtime.ArtifactError, match="the process that made it"):
            load(text.encode())


ARITH = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %weights = arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %0 = stablehlo.multiply %x, %weights : tensor<3xf32>
  return %0 : tensor<3xf32>
}"""


def test_a_constant_tensor_of_arith_is_one_of_stablehlo():
    """XLA compiles it, but a saved file and JAX have no such op."""
    expected = str(_module.parse(ARITH.replace("arith", "stablehlo").encode()))
    module = _module.parse(ARITH.encode())
    assert str(module) == expected
    with module.context:
        unread = ir.Module.parse(ARITH)
    assert "arith.constant" in str(unread)
    assert str(_module.parse(_module.to_bytecode(unread))) == expected
    x = np.ones(3, np.float32)
    assert pb.load(ARITH.encode()).as_jax()(x).tolist() == [1, 2, 3]


@pytest.mark.parametrize("value", ["1 : index", "1 : i64", "dense<1.0> : vector<4xf32>"])
def test_a_constant_of_arith_that_is_no_tensor_stays(value):
    text = f"""func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
      %unused = arith.constant {value}
      return %x : tensor<3xf32>
    }}"""
    assert "arith.constant" in (found := str(_module.parse(text.encode())))
    assert "stablehlo.constant" not in found
