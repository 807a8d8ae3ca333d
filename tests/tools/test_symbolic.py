"""The command line with symbolic dimensions, in files and in `--args`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_shape

import pullback
from pullback.files.symbolic import refine_types
from pullback.tools.arguments import parse_arguments
from tests.files import models

X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(3, 2)
W = np.array([0.5, -1.5], np.float32)


def loss(w, x):
    """The gradient of the rule is twice JAX's."""
    return jnp.sum(models.doubled_sine(x * w) * x.shape[0])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file, with its arguments beside it."""
    folder = tmp_path_factory.mktemp("symbolic")
    (b,) = symbolic_shape("b", constraints=["b >= 2"])
    types = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((2,), (b, 2))]
    pullback.trace(loss, platforms=("cpu", "tpu"))(*types).save(folder / "loss.mlirbc")
    np.save(folder / "w.npy", W)
    np.save(folder / "x.npy", X)
    return folder / "loss.mlirbc"


@pytest.fixture
def inputs(saved):
    return "--input", saved.parent / "w.npy", "--input", saved.parent / "x.npy"


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_info(pullback_command, saved):
    shown = pullback_command("info", saved).stdout
    assert "symbols           b, b >= 2" in shown
    assert "argument          x: float32[b,2]" in shown
    assert "result            result: float32[]" in shown
    assert "derivatives       of any order" in shown


def test_info_says_why_there_are_first_derivatives_only(pullback_command, tmp_path, monkeypatch):
    monkeypatch.delitem(refine_types.FOLLOWING, "stablehlo.dynamic_top_k")
    x = jax.ShapeDtypeStruct(symbolic_shape("n"), "float32")
    program = pullback.trace(lambda x: jnp.sum(jax.lax.top_k(x, x.shape[0] // 2)[0]))(x)
    program.save(tmp_path / "top.mlirbc")
    shown = pullback_command("info", tmp_path / "top.mlirbc").stdout
    assert "of first order, both modes: ArtifactError: the sizes of what `top_k` gives" in shown


def test_derivatives_keep_their_symbols(pullback_command, saved, inputs, tmp_path):
    gradient, results = tmp_path / "gradient.mlirbc", tmp_path / "out.npz"
    pullback_command("derive", saved, "--grad", "--wrt", "1", "-o", gradient)
    pullback_command("run", gradient, *inputs, "-o", results)
    close(np.load(results)["result_0"], jax.grad(loss, 1)(W, X))
    moved = np.cos(X)
    expected = jax.jvp(lambda x: jax.grad(loss, 1)(W, x), (X,), (moved,))[1]
    close(pullback.load(gradient).jvp(1)(W, X, moved)[1], expected)


def test_as_text_they_have_no_rules_which_is_said(pullback_command, saved):
    shown = pullback_command("derive", saved, "--grad", "--wrt", "1")
    assert "-> (tensor<?x2xf32>" in shown.stdout
    assert "has no rules as text; a .mlirbc file holds them" in shown.stderr


def test_what_has_no_symbolic_form_takes_sizes(pullback_command, saved, tmp_path):
    second = tmp_path / "second.mlirbc"
    asked = "derive", saved, "--vjp", "--wrt", "1", "--order", "2", "-o", second
    refused = pullback_command(*asked)
    assert refused.exit_code == 2
    assert "derivatives of first order only, while dimensions are symbols" in refused.stderr
    assert "--sizes in a shell" in refused.stderr
    assert pullback_command(*asked, "--sizes", "b=3").exit_code == 0
    one, ct = jnp.float32(1.0), jnp.sin(X)
    gradient = lambda x: jax.vjp(lambda x: loss(W, x), x)[1](one)[0]  # noqa: E731
    found = pullback.load(second)(W, X, one, (jnp.float32(0.0), ct))[1]
    close(found, jax.vjp(gradient, X)[1](ct)[0])


@pytest.mark.parametrize(
    ("command", "what", "then"),
    [
        (["derive", "--grad", "--rules"], "--rules wants sizes", "tensor<4x2xf32>"),
        (["derive", "--grad", "--lower"], "--lower wants sizes", "tensor<4x2xf32>"),
        (["derive", "--vmap", "5"], "--vmap wants sizes", "tensor<5x4x2xf32>"),
        (["dump", "--rules"], "--rules wants sizes", "@doubled_sine.fwd"),
        (["dump", "--stage", "hlo"], "a stage of stablehlo or hlo wants sizes", "f32[4,2]"),
        (["run", "--random", "0"], "running without --input wants sizes", "result 0"),
    ],
)
def test_what_wants_sizes_says_which(pullback_command, saved, command, what, then):
    name, *options = command
    refused = pullback_command(name, saved, *options)
    assert refused.exit_code == 2
    assert what in refused.stderr
    assert "has the symbolic dimensions b" in refused.stderr
    assert "--sizes b=4" in refused.stderr
    assert then in pullback_command(name, saved, *options, "--sizes", "b=4").stdout


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("n=3", "sizes of n are given, and the program has the symbols b"),
        ("b=1", "b >= 2"),
        ("b", "is not sizes such as b=4,n=3"),
        ("b=x", "is not sizes such as b=4,n=3"),
        ("b=3, b=4", "gives a dimension two sizes"),
    ],
)
def test_sizes_that_do_not_fit(pullback_command, saved, sizes, words):
    refused = pullback_command("run", saved, "--random", "0", "--sizes", sizes)
    assert refused.exit_code == 2
    assert words in refused.stderr


def test_sizes_are_for_symbols(pullback_command, model):
    refused = pullback_command("run", f"{model}:f", "--sizes", "b=4")
    assert "--sizes is for symbolic dimensions" in refused.stderr


def test_arrays_give_sizes(pullback_command, saved, inputs, tmp_path):
    results = tmp_path / "out.npz"
    pullback_command("run", saved, *inputs, "--compare", "-o", results)
    close(np.load(results)["result_0"], loss(W, X))
    too_few = pullback_command("run", saved, *inputs[:2])
    assert "takes 2 arrays, and 1 are given" in too_few.stderr
    np.savez(tmp_path / "both.npz", x=X, w=W)
    again = pullback_command("run", saved, "--input", tmp_path / "both.npz", "-o", results)
    assert again.exit_code == 0, again.stderr
    close(np.load(results)["result_0"], loss(W, X))
    np.save(tmp_path / "wrong.npy", np.ones((3, 5), np.float32))
    wrong = pullback_command("run", saved, *inputs[:2], "--input", tmp_path / "wrong.npy")
    words = "(x) has the wrong shape: expected float32[b,2], got float32[3,5] of NumPy"
    assert words in wrong.stderr


def test_the_words_of_keys_give_no_sizes(pullback_command, tmp_path):
    (b,) = symbolic_shape("b")
    keys = jax.random.split(jax.random.key(0), 3)
    program = pullback.trace(jax.vmap(jax.random.normal))(jax.ShapeDtypeStruct((b,), keys.dtype))
    program.save(tmp_path / "normal.mlirbc")
    np.save(tmp_path / "keys.npy", jax.random.key_data(keys))
    asked = "run", tmp_path / "normal.mlirbc", "--input", tmp_path / "keys.npy"
    assert "random keys, whose words are no sizes, wants sizes" in pullback_command(*asked).stderr
    pullback_command(*asked, "--sizes", "b=3", "-o", tmp_path / "out.npz")
    close(np.load(tmp_path / "out.npz")["result_0"], jax.vmap(jax.random.normal)(keys))


def test_dump(pullback_command, saved):
    shown = pullback_command("dump", saved)
    assert "tensor<?x2xf32>" in shown.stdout
    assert "loc(" not in shown.stdout
    assert "loc(" in pullback_command("dump", saved, "--locations").stdout
    everything = pullback_command("dump", saved, "--stage", "all", "--platform", "tpu")
    assert "no stages stablehlo and hlo while dimensions are symbols" in everything.stderr
    assert "tensor<?x2xf32>" in everything.stdout
    gradient = pullback_command("dump", saved, "--stage", "grad").stdout
    assert "-> (tensor<2xf32>" in gradient
    fixed = pullback_command("dump", saved, "--sizes", "b=4").stdout
    assert "pullback.custom_vjp_call" in fixed
    assert "tensor<4x2xf32>" in fixed
    other = pullback_command("dump", saved, "--platform", "cuda")
    assert "traced for cpu, tpu, not for cuda" in other.stderr


def test_opt_wants_a_module_of_some_size(pullback_command, saved):
    refused = pullback_command("opt", saved, "--pass-pipeline=cse")
    assert "which is a module for each set of sizes" in refused.stderr
    assert "dump FILE --sizes b=4" in refused.stderr


def test_a_symbol_is_one_size_in_all_arguments():
    first, second = parse_arguments("f32[n], {a: f32[n, 2], b: f32[m]}")
    assert first.shape[0] == second["a"].shape[0] != second["b"].shape[0]
    assert list(map(str, (*first.shape, *second["b"].shape))) == ["n", "m"]


def test_arguments_of_targets_may_have_symbols(pullback_command, model, tmp_path):
    target, types = f"{model}:scalar", ("--args", "f32[n], f32[n]")
    second = tmp_path / "second.mlirbc"
    pullback_command("derive", target, *types, "--vjp", "--order", "2", "-o", second)
    assert pullback.load(second).symbols == ("n",)
    shown = pullback_command("dump", target, *types, "--stage", "jaxpr", "--stage", "program")
    assert "f32[n]" in shown.stdout
    assert "tensor<?xf32>" in shown.stdout
    run = "run", target, *types, "--jax", "--random", "0", "--sizes", "n=3", "--tolerance", "1e-5"
    assert pullback_command(*run).exit_code == 0
    refused = pullback_command("check", target, *types)
    assert "a check wants sizes" in refused.stderr
    assert "give them: --sizes n=4" in refused.stderr
    assert pullback_command("check", target, *types, "--sizes", "n=3").exit_code == 0
