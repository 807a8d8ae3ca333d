"""`pb.load(…, rules=…)`: functions of a foreign module get rules that were lost on its way."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb

X = np.array([-2.0, 0.5, 0.0, 3.0], np.float32)

FOREIGN = """
func.func @main(%x: tensor<4xf32>) -> tensor<f32> {
  %a = stablehlo.composite "acme.clip" %x {decomposition = @clip} : (tensor<4xf32>) -> tensor<4xf32>
  %b = func.call @relu(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}
func.func private @clip(%x: tensor<4xf32>) -> tensor<4xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<4xf32>
  %r = stablehlo.minimum %x, %one : tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func private @relu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %r = stablehlo.maximum %x, %zero : tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


@jax.custom_vjp
def straight_through(x):
    return jnp.minimum(x, 1.0)


straight_through.defvjp(lambda x: (straight_through(x), None), lambda _, ct: (ct,))
RULES = {"acme.clip": straight_through, "relu": jax.nn.relu}


def reference(x):
    return jnp.sum(jax.nn.relu(straight_through(x)))


def test_a_composite_and_a_function_get_a_rule():
    program = pb.load(FOREIGN.encode(), rules=RULES)
    value, gradient = jax.value_and_grad(reference)(X)
    np.testing.assert_array_equal(program(X), value)
    np.testing.assert_array_equal(program.grad()(X), gradient)
    assert not np.array_equal(pb.load(FOREIGN.encode()).grad()(X), gradient)


def test_a_file_saved_of_it_has_them(tmp_path):
    pb.load(FOREIGN.encode(), rules=RULES).save(tmp_path / "given.mlirbc")
    gradient = pb.load(tmp_path / "given.mlirbc").grad()(X)
    np.testing.assert_array_equal(gradient, jax.grad(reference)(X))


def test_a_jvp_rule_serves_forward_mode():
    program = pb.load(FOREIGN.encode(), rules={"relu": jax.nn.relu})
    at_kink = np.zeros(4, np.float32)
    _, tangent = pb.jvp(program, (at_kink,), (np.ones(4, np.float32),))
    assert tangent == 0.0


@jax.jit
def clipped(x):
    return straight_through(x)


def exported(**options):
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    export = jax.export.export(jax.jit(lambda x: jnp.sum(clipped(x) ** 2)))(shape)
    return bytes(export.serialize(**options))


@pytest.mark.filterwarnings("ignore::pullback.LostRulesWarning")
def test_a_function_of_an_export_gets_its_rule_back():
    program = pb.load(exported(), rules={"clipped": straight_through})
    wanted = jax.grad(lambda x: jnp.sum(clipped(x) ** 2))(X)
    np.testing.assert_array_equal(program.grad()(X), wanted)


@jax.jit
def inner(x):
    return x * x


@jax.jit
def outer(x):
    return jnp.sin(inner(x))


@pytest.mark.filterwarnings("ignore::pullback.LostRulesWarning")
def test_the_given_function_may_contain_what_calls_the_one_replaced():
    export = jax.export.export(jax.jit(lambda x: jnp.sum(outer(x))))(X)
    program = pb.load(bytes(export.serialize()), rules={"inner": outer})
    np.testing.assert_allclose(program(X), jnp.sum(jnp.sin(outer(X))), rtol=1e-6)
    wanted = jax.grad(lambda x: jnp.sum(jnp.sin(outer(x))))(X)
    np.testing.assert_allclose(program.grad()(X), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "while"])
def test_functions_of_tensorflow_are_named(name):
    source = (Path(__file__).parent / "tensorflow" / f"{name}.mlir").read_bytes()
    with pytest.raises(pb.ArtifactError, match=r"give rules to (.*)") as raised:
        pb.load(source, rules={"nothing": jnp.sin})
    assert "cond" in str(raised.value)


def test_a_name_that_is_none_is_an_error():
    words = (
        r"rules= has one for `relo`, and the module calls no function of that name"
        r"(.|\n)*give rules to acme.clip, relu"
    )
    with pytest.raises(pb.ArtifactError, match=words):
        pb.load(FOREIGN.encode(), rules={"relo": jax.nn.relu})


def test_a_function_of_another_type_is_an_error():
    words = r"for `relu` returns float32\[\], and that of the module returns float32\[4\]"
    with pytest.raises(pb.ArtifactError, match=words):
        pb.load(FOREIGN.encode(), rules={"relu": jnp.sum})


def test_a_function_that_closes_over_arrays_is_an_error():
    array = jnp.ones(100)
    with pytest.raises(pb.ArtifactError, match="for `relu` closes over arrays"):
        pb.load(FOREIGN.encode(), rules={"relu": lambda x: x * array.sum()})


def test_an_export_with_derivatives_takes_none():
    with pytest.raises(pb.ArtifactError, match="this one has derivatives, which have its rules"):
        pb.load(exported(vjp_order=1), rules={"clipped": straight_through})


def test_an_export_with_symbolic_dimensions_takes_none():
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    content = bytes(jax.export.export(jax.jit(jnp.sin))(shape).serialize())
    with pytest.raises(pb.ArtifactError, match="this one has symbolic dimensions"):
        pb.load(content, rules={"sin": jnp.sin})


def test_a_file_of_ours_takes_none(tmp_path):
    pb.trace(jnp.sin)(X).save(tmp_path / "sine.mlirbc")
    with pytest.raises(pb.ArtifactError, match="pullback has saved this file, with its rules"):
        pb.load(tmp_path / "sine.mlirbc", rules={"sin": jnp.sin})
