"""make_callable(): pytrees in and out, arguments named by their path."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback_runtime as runtime
from pullback_runtime.call._callable import argument_paths

PARAMS = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}
X = np.ones(2, np.float32)


def predict(params, x, *, scale):
    return {"out": scale * (x @ params["w"] + params["b"]), "norm": jnp.sum(x)}


@pytest.fixture
def predictor(module_of):
    args, kwargs = (PARAMS, X), {"scale": np.float32(2)}
    module = jax.jit(predict).lower(*args, **kwargs).compiler_ir()
    result = jax.eval_shape(predict, *args, **kwargs)
    return runtime.make_callable(
        runtime.make_handle(module), jax.tree.structure((args, kwargs)), jax.tree.structure(result)
    )


def test_pytrees_in_and_out(predictor):
    result = predictor(PARAMS, X, scale=2.0)
    np.testing.assert_array_equal(result["out"], [4, 4, 4])
    assert float(result["norm"]) == 2.0


def test_it_is_jitted_and_composes(predictor):
    assert predictor.lower(PARAMS, X, scale=2.0).compile().cost_analysis()["flops"] > 0
    doubled = jax.jit(lambda x: predictor(PARAMS, x, scale=2.0)["out"] * 2)(X)
    np.testing.assert_array_equal(doubled, [8, 8, 8])


def test_paths():
    assert argument_paths(((1, {"w": 2, "b": [3, 4]}), {"scale": 5})) == (
        "args[0]",
        "args[1]['b'][0]",
        "args[1]['b'][1]",
        "args[1]['w']",
        "kwargs['scale']",
    )


def test_an_error_names_the_leaf(predictor):
    wrong = {**PARAMS, "w": np.ones((2, 4), np.float32)}
    with pytest.raises(runtime.ArgumentError) as caught:
        predictor(wrong, X, scale=2.0)
    assert str(caught.value).startswith(
        "argument 1 (args[0]['w']) has the wrong shape: "
        "expected float32[2,3], got float32[2,4]\n  where: in a call of @main\n"
    )


def test_a_wrong_structure_shows_both(predictor):
    with pytest.raises(runtime.ArgumentError) as caught:
        predictor({"w": PARAMS["w"]}, X, scale=2.0)
    assert str(caught.value).startswith(
        "the arguments of @main have the wrong structure\n"
        "    expected: PyTreeDef((({'b': *, 'w': *}, *), {'scale': *}))\n"
        "    got:      PyTreeDef((({'w': *}, *), {'scale': *}))\n"
        "  where: leaves expected: args[0]['b'], args[0]['w'], args[1], kwargs['scale']\n"
        "  do:    pass the same containers, keys and keyword arguments as when it was traced"
    )


def test_trees_that_do_not_fit_the_module(handle_of):
    one, two = jax.tree.structure(((1,), {})), jax.tree.structure((1, 2))
    with pytest.raises(runtime.ArgumentError) as caught:
        runtime.make_callable(handle_of(jnp.sin, X), one, two)
    assert str(caught.value) == (
        "out_tree has 2 leaves, but @main has 1 results\n"
        "  where: in make_callable\n"
        "  do:    in_tree is the structure of (args, kwargs), out_tree that of the result"
    )


def test_donated_pytrees(handle_of):
    tree = jax.tree.structure((({"a": 1, "b": 2}, 3), {}))
    handle = handle_of(lambda a, b, c: (a + c, b + c), X, X, X)
    update = runtime.make_callable(handle, tree, jax.tree.structure([1, 2]), donate_argnums=0)
    state, step = {"a": jnp.ones(2), "b": jnp.ones(2)}, jnp.ones(2)
    assert [leaf.tolist() for leaf in update(state, step)] == [[2, 2], [2, 2]]
    assert state["a"].is_deleted()
    assert state["b"].is_deleted()
    assert not step.is_deleted()
