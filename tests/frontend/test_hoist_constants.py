"""Large arrays that a function closes over are arguments of its program, wherever they are used."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact

WEIGHTS = np.random.default_rng(0).normal(size=(2, 10, 10)).astype(np.float32) / 10
X = np.linspace(-1.0, 1.0, 10, dtype=np.float32)


@jax.jit
def inner(x):
    return jnp.tanh(x @ WEIGHTS[0])


@jax.jit
def outer(x):
    return inner(x) + inner(2 * x) @ WEIGHTS[1]


def scanned(x):
    return jax.lax.scan(lambda c, y: (inner(c) * y, outer(c) + y), x, jnp.arange(3.0))[1]


def looped(x):
    return jax.lax.while_loop(lambda c: jnp.sum(inner(c)) > 10, outer, x)


def chosen(x):
    return jax.lax.switch(jnp.int32(jnp.sum(x) + 1), [inner, outer, jnp.sin], x)


FUNCTIONS = {
    "directly": lambda x: jnp.sin(x @ WEIGHTS[0]) @ WEIGHTS[1],
    "in a jit": inner,
    "in a jit in a jit": outer,
    "in a scan": scanned,
    "in a loop": looped,
    "in a counted loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: outer(c) + i, x),
    "in branches": chosen,
    "in a checkpoint": jax.checkpoint(outer),
    "in a map": lambda x: jax.vmap(outer)(jnp.stack([x, 2 * x])),
    "in a gradient": jax.grad(lambda x: jnp.sum(outer(x))),
}


@pytest.fixture(params=FUNCTIONS.values(), ids=FUNCTIONS.keys())
def function(request):
    return request.param


def test_arrays_are_arguments_and_each_is_there_once(function):
    program = pb.trace(function)(X)
    assert "dense<" not in "".join(line for line in str(program).splitlines() if "10x10" in line)
    assert 1 <= len({np.asarray(c).tobytes() for c in program.constants}) == len(program.constants)
    assert program.arg_paths == ("x",)
    np.testing.assert_allclose(program(X), function(X), rtol=1e-6)


def test_derivatives(function):
    program = pb.trace(function)(X)
    direction = np.arange(10.0, dtype=np.float32)
    for each in (program, pb.load(artifact.serialize(program))):
        out, tangent = each.jvp()(X, direction)
        expected = jax.jvp(function, (X,), (direction,))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            (out, tangent),
            expected,
        )


LARGE = np.linspace(-1.0, 1.0, 10_000, dtype=np.float32).reshape(100, 100)


def times_large(x):
    return jnp.tanh(jnp.tile(x, 10) @ LARGE)


@pytest.mark.parametrize(
    "find",
    [
        lambda: pb.trace(times_large)(X),
        lambda: pb.load(artifact.serialize(pb.trace(times_large)(X))),
        lambda: pullback_runtime.load(artifact.serialize(pb.trace(times_large)(X))),
    ],
    ids=["traced", "loaded", "loaded by the runtime"],
)
def test_the_first_call_may_be_in_a_trace(find):
    """Arrays made there are the trace's, and must not be kept for later calls."""
    found = []

    def derivative(x):
        found.extend([] if found else [find()])
        return jax.jvp(lambda x: found[0](x), (x,), (x,))

    for ours in (jax.jit(derivative), jax.jit(lambda x: derivative(x)), derivative):
        for one, other in zip(ours(X), jax.jvp(times_large, (X,), (X,)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_small_arrays_stay_where_they_are():
    small = np.arange(8, dtype=np.float32)
    program = pb.trace(lambda x: jax.jit(lambda y: y * small)(x) + jnp.sum(outer(X)))(small)
    assert len(program.constants) == 2
    np.testing.assert_allclose(program(small), small**2 + jnp.sum(outer(X)), rtol=1e-6)


@pytest.mark.parametrize(("size", "hidden"), [(10_000, 0), (10_001, 1)])
def test_a_mask_stays_up_to_ten_thousand_elements(size, hidden):
    mask = np.arange(size) % 3 == 0
    program = pb.trace(lambda x: jnp.where(mask, x, 0.0))(np.ones(size))
    assert len(program.constants) == hidden
    np.testing.assert_array_equal(program(np.ones(size)), mask)


def test_a_shared_function_stays_one():
    text = str(pb.trace(lambda x: inner(inner(x)))(X))
    assert text.count("func.func private @inner") == 1
