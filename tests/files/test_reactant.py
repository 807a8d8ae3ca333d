"""Modules that Reactant wrote for Julia: `make reactant` on the small ones that are here."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from tests.reactant.__main__ import EQUAL, check, modules

FOLDER = Path(__file__).parent / "reactant"
NAMES = ["conditional.mlir:1", "dense.mlir:1", "loss.mlir:1"]


def test_every_module_is_found():
    assert [name for name, _ in modules(FOLDER)] == NAMES


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_equal_finite_differences(name):
    outcomes = check(dict(modules(FOLDER))[name])
    assert {step: outcome.text for step, outcome in outcomes.items()} == {
        "loads": EQUAL,
        "forward": EQUAL,
        "reverse": EQUAL,
    }


def test_the_arrays_of_julia_are_transposed_and_an_alias_is_not_donated():
    program = pb.load(FOLDER / "dense.mlir")
    weight, bias = np.linspace(-0.1, 0.2, 12, dtype="f").reshape(3, 4), np.full(3, 0.01, "f")
    x = np.linspace(0, 1, 20, dtype="f").reshape(4, 5)

    def layer(x, weight, bias):
        return jnp.tanh(jnp.sum(jnp.tanh(weight @ x + bias[:, None])))

    given = tuple(map(jnp.asarray, (x.T, weight.T, bias)))
    loss, _ = program(*given)
    assert jnp.allclose(loss, layer(x, weight, bias), rtol=1e-5)
    _, gradients = program.vjp()(*given, (1.0, jnp.zeros((4, 3))))
    expected = jax.grad(layer, (0, 1, 2))(x, weight, bias)
    for found, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(np.asarray(found).T, wanted, rtol=1e-4, atol=1e-6)
    assert not given[1].is_deleted()
    loaded = program.as_jax()
    assert jnp.allclose(loaded(*given)[0], loss)


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("enzyme.autodiff @f(%x)", "has ops of `enzyme`"),
        (
            '"enzymexla.rotate"(%x) : (tensor<f32>) -> tensor<f32>',
            "has ops or attributes of a dialect that jaxlib does not have",
        ),
    ],
)
def test_a_refusal_is_named(op, reason):
    text = f"""module @reactant_f {{
      func.func @main(%x: tensor<f32>) -> tensor<f32> {{
        %0 = {op}
        return %0 : tensor<f32>
      }}
    }}"""
    (outcome,) = check(text).values()
    assert outcome == (reason, False)
