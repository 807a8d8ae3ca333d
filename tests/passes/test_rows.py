"""What the iterations of a batched loop read and write slot by slot has the slots in front."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb

SLOTS, ITEMS = 6, 3
X = np.linspace(-1, 1, ITEMS * SLOTS).reshape(ITEMS, SLOTS)
W = np.linspace(0.5, 1.5, SLOTS)


def outputs(x):
    return lax.scan(lambda c, a: (jnp.tanh(c * 0.5 + a), c * a), 0.1, x)[1]


def reversed_outputs(x):
    return lax.scan(lambda c, a: (jnp.sin(c + a), c * a), 0.1, x, reverse=True)[1]


def states(x):
    """A matrix for each iteration."""
    return lax.scan(lambda c, a: (jnp.sin(c + a * W), c), jnp.outer(W, W)[:2] * x[0], x)[1]


def last(x):
    return lax.scan(lambda c, a: (jnp.tanh(c * 0.5 + a), None), 0.1, x)[0]


def captured(x):
    """Read by slots, and as a whole."""

    def step(i, c):
        return c * lax.dynamic_index_in_dim(x, i, keepdims=False) + jnp.sum(x)

    return lax.fori_loop(0, SLOTS, step, 1.0)


def history(x):
    """Each iteration reads what the one before has written."""

    def step(i, h):
        before = lax.dynamic_index_in_dim(h, i - 1, keepdims=False)
        now = jnp.sin(before) + lax.dynamic_index_in_dim(x, i, keepdims=False)
        return lax.dynamic_update_index_in_dim(h, now, i, 0)

    return lax.fori_loop(1, SLOTS, step, x * 0.5)


def some_slots(x):
    """Only a part is written, with a shared start."""

    def step(i, h):
        value = lax.dynamic_index_in_dim(x, i, keepdims=False) ** 2
        return lax.dynamic_update_index_in_dim(h, value, i, 0)

    return lax.fori_loop(2, SLOTS - 1, step, jnp.asarray(W, x.dtype))


def nested(x):
    def outer(c, a):
        inner = lax.scan(lambda d, b: (jnp.sin(d + b * a), d * b), c, x)
        return inner[0], inner[1]

    return lax.scan(outer, 0.2, x)[1]


def in_a_branch(x):
    def step(c, a):
        return lax.cond(c > 0, lambda: (c * a, c), lambda: (c + a, a * a))

    return lax.scan(step, 0.2, x)[1]


ROWS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f
    for f in (outputs, reversed_outputs, states, last, captured, history, some_slots, nested)
}


def whole(x):
    """The stack is read as a whole too."""

    def step(i, h):
        return lax.dynamic_update_index_in_dim(h, jnp.sum(h) * 0.1 + W[1], i, 0)

    return lax.fori_loop(0, SLOTS, step, x)


def shifted(x):
    """A carry that takes the place of another one."""

    def step(i, hs):
        h, g = hs
        return g, lax.dynamic_update_index_in_dim(h, jnp.sin(h[0]), i, 0)

    return lax.fori_loop(0, SLOTS, step, (x, x * 2))


def replaced(x):
    """A slot is read of what then is another one."""

    def step(i, h):
        return h[::-1] * lax.dynamic_index_in_dim(x, i, keepdims=False)

    def first(i, hs):
        h, c = hs
        return x * 0.1 * c, c + lax.dynamic_index_in_dim(h, i, keepdims=False)

    return lax.fori_loop(0, SLOTS, step, x), lax.fori_loop(0, SLOTS, first, (x, x[0] * 0))


def own_places(x):
    """Each item writes to a place of its own."""
    first = jnp.argmax(x)

    def step(i, h):
        place = (first + i) % SLOTS
        value = lax.dynamic_index_in_dim(x, place, keepdims=False) * 2
        return lax.dynamic_update_index_in_dim(h, value, place, 0)

    return lax.fori_loop(0, SLOTS - 1, step, jnp.asarray(W, x.dtype))


def two_slots(x):
    def step(i, h):
        return lax.dynamic_update_slice(h, lax.dynamic_slice(x, (i,), (2,)) ** 2, (i,))

    return lax.fori_loop(0, SLOTS - 1, step, x)


def in_the_condition(x):
    def goes_on(state):
        i, h = state
        return (i < SLOTS) & (h[0] < 5.0)

    def step(state):
        i, h = state
        return i + 1, lax.dynamic_update_index_in_dim(h, h[0] + 1.5, i, 0)

    return pb.bounded_while_loop(goes_on, step, (0, x), max_steps=SLOTS)[1]


def few_iterations(x):
    def step(i, c):
        return c + lax.dynamic_index_in_dim(x, i, keepdims=False) ** 2

    return lax.fori_loop(0, 2, step, 0.0)


OTHERS = {
    f.__name__: f
    for f in (
        *(
            in_a_branch,
            whole,
            shifted,
            replaced,
            own_places,
            two_slots,
            in_the_condition,
            few_iterations,
        ),
    )
}


def agree(ours: Any, theirs: Any) -> None:
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def squared(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(f(x)))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [*ROWS, *OTHERS])
def test_a_batch_is_that_of_jax(name: str) -> None:
    f = {**ROWS, **OTHERS}[name]
    program = pb.trace(f)(X[0])
    agree(program.vmap(axis_size=ITEMS)(X), jax.vmap(f)(X))
    agree(program.vmap(1, axis_size=ITEMS)(X.T), jax.vmap(f)(X))
    tangent = np.cos(X)
    agree(pb.jvp(pb.vmap(f), (X,), (tangent,)), jax.jvp(jax.vmap(f), (X,), (tangent,)))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [*ROWS, *OTHERS])
def test_a_batch_has_the_gradients_of_jax(name: str) -> None:
    if name == "in_the_condition":
        pytest.skip("JAX has no reverse mode for it")
    f = squared({**ROWS, **OTHERS}[name])
    expected = jax.vmap(jax.grad(f))(X)
    agree(pb.vmap(pb.grad(f))(X), expected)
    batch = pb.trace(f)(X[0]).vmap(axis_size=ITEMS)
    agree(batch.vjp()(X, np.ones(ITEMS))[1][0], expected)
    agree(
        pb.grad(lambda x: jnp.sum(pb.vmap(pb.grad(f))(x) ** 2))(X),
        jax.grad(lambda x: jnp.sum(jax.vmap(jax.grad(f))(x) ** 2))(X),
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["outputs", "states", "captured"])
def test_jacobians_of_loops(name: str) -> None:
    f, x = ROWS[name], X[0]
    agree(pb.jacfwd(f)(x), jax.jacfwd(f)(x))
    agree(pb.jacrev(f)(x), jax.jacrev(f)(x))


@pytest.mark.usefixtures("float64")
def test_an_argument_around_the_loop_has_rows() -> None:
    """The cotangents, of which the loop that runs back reads a slot in each iteration."""
    batch = pb.trace(outputs)(X[0]).vjp().vmap((None, 0), axis_size=ITEMS)
    assert f"{ITEMS}, 1" not in parts(str(batch))
    cts = np.cos(X)
    _, (found,) = batch(X[0], cts)
    agree(found, jax.vmap(lambda ct: jax.vjp(outputs, X[0])[1](ct)[0])(cts))


def parts(text: str) -> list[str]:
    """The sizes of what loops slice, and the types of what they write."""
    read = re.findall(r"dynamic_slice .*sizes = \[([\d, ]*)\]", text)
    written = re.findall(r"dynamic_update_slice .*, tensor<(\w+)xf32>, tensor<i32>", text)
    return [*read, *(part.rpartition("tensor<")[2].replace("x", ", ") for part in written)]


@pytest.mark.parametrize("name", [name for name in ROWS if name not in ("nested", "states")])
def test_slots_are_rows(name: str) -> None:
    text = str(pb.trace(ROWS[name])(X[0]).vmap(axis_size=ITEMS))
    assert parts(text)
    assert set(parts(text)) == {f"1, {ITEMS}"}


@pytest.mark.parametrize("name", ["two_slots", "few_iterations"])
def test_others_are_not(name: str) -> None:
    text = str(pb.trace(OTHERS[name])(X[0]).vmap(axis_size=ITEMS))
    assert parts(text)
    assert f"1, {ITEMS}" not in parts(text)


def test_reverse_mode_of_a_batch_carries_no_cotangent_of_a_stack() -> None:
    """It was written to in each iteration: time grew with the square of the number of these."""
    batch = pb.trace(outputs)(X[0]).vmap(axis_size=ITEMS)
    text = str(batch.vjp())
    *_, backward = re.findall(r"stablehlo\.while\(.*\) : (.*)", text)
    # One is the gradient of the inputs, the others are what the forward loop has kept.
    alone = str(pb.trace(outputs)(X[0]).vjp())
    *_, of_one = re.findall(r"stablehlo\.while\(.*\) : (.*)", alone)
    whole = f"tensor<{SLOTS}x{ITEMS}xf32>"
    assert backward.count(whole) == of_one.count(f"tensor<{SLOTS}xf32>")
    assert f"tensor<{ITEMS}x{SLOTS}xf32>" not in backward


def test_second_derivatives_of_a_batch_write_no_slot_twice() -> None:
    """What adds to a slot hands its cotangent on, also where the slot is reshaped and back."""

    def loss(x, w):
        def step(h, a):
            h = jnp.tanh(w * h + a)
            return h, h

        return jnp.sum(lax.scan(step, jnp.zeros(x.shape[1:]), x)[1] ** 2)

    w = np.full(ITEMS, 0.5)

    def plain(x):
        return jnp.sum(pb.grad(loss)(x, w) ** 2)

    def batch(x):
        return jnp.sum(pb.vmap(pb.grad(loss), (1, 0))(x, w) ** 2)

    counts = [str(pb.trace(f)(X.T).grad()).count("dynamic_update_slice") for f in (plain, batch)]
    assert counts[0] == counts[1]
