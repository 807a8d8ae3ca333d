"""Sums of products over the iterations of a reverse loop: behind it, and as JAX has them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb

STEPS, BATCH, WIDTH = 6, 2, 8


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) / 3


def recurrent(step, reverse=False, steps=STEPS):
    """A loss of what `step(w, h, x)` gives, step by step."""

    def loss(w, xs):
        h = jnp.zeros(xs.shape[1:], xs.dtype) + 0.1
        end, hs = jax.lax.scan(lambda h, x: 2 * (step(w, h, x),), h, xs[:steps], reverse=reverse)
        return jnp.sum(jnp.sin(hs)) + jnp.sum(end**2)

    return loss


W, XS = array(WIDTH, WIDTH), array(STEPS, BATCH, WIDTH, seed=1)
ROWS = array(STEPS, WIDTH, seed=2)


def twice(w, h, x):
    return jnp.tanh(jnp.tanh(h @ w) @ w + x @ w.T + w[0])


def by_products_of_the_state(w, h, x):
    return jnp.tanh(jnp.einsum("bi,ij,bj->b", h, w, x)[:, None] + h @ w)


def inner_loop(w, h, x):
    return jax.lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ w + x @ w), h)


def with_batches(w, h, x):
    h = jnp.einsum("kbi,kij->kbj", h.reshape(2, -1, WIDTH // 2), w.reshape(2, 4, 8)[..., :4])
    return jnp.tanh(h.reshape(x.shape) + x)


def checkpointed(w, h, x):
    return jax.checkpoint(lambda h, x: jnp.tanh(h @ w + x @ w))(h, x)


def converted(w, h, x):
    return jnp.tanh((h.astype("float32") @ w.astype("float32")).astype(h.dtype) + x)


CASES = {
    "plain": (lambda w, h, x: jnp.tanh(h @ w + x @ w), XS),
    "rows": (lambda w, h, x: jnp.tanh(w @ h + w.T @ x), ROWS),
    "residual": (lambda w, h, x: h + jnp.tanh(h @ w + x), XS),
    "only the input": (lambda w, h, x: jnp.tanh(0.5 * h + x @ w), XS),
    "only the state": (lambda w, h, x: jnp.tanh(h @ w) * x, XS),
    "the weights elsewhere": (lambda w, h, x: jnp.tanh(h @ w + x @ jnp.sin(w) + w.sum(0)), XS),
    "the input twice": (lambda w, h, x: jnp.tanh(h @ w + x @ w) + x + x @ w, XS),
    "twice": (twice, XS),
    "products of the state": (by_products_of_the_state, XS),
    "inner loop": (inner_loop, XS),
    "batches": (with_batches, XS),
    "checkpoint": (checkpointed, XS),
    "branches": (lambda w, h, x: jax.lax.cond(h.sum() > 0, lambda: h @ w, lambda: x @ w.T), XS),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_jax(name, reverse):
    step, xs = CASES[name]
    loss = recurrent(step, reverse)
    for found, expected in zip(
        pb.jit(pb.grad(loss, (0, 1)))(W, xs), jax.grad(loss, (0, 1))(W, xs), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["plain", "twice", "inner loop", "rows", "residual"])
def test_second_derivatives_and_batches_are_those_of_jax(name):
    step, xs = CASES[name]
    loss, v = recurrent(step), array(WIDTH, WIDTH, seed=5)
    gradient = pb.trace(loss)(W, xs).grad((0, 1))

    def directional(w, xs):
        return jnp.vdot(v, jax.grad(loss)(w, xs))

    for over in (lambda f: pb.grad(f, (0, 1)), lambda f: jax.jit(pb.grad(f, (0, 1)))):
        found = over(lambda w, xs: jnp.vdot(v, pb.grad(loss)(w, xs)))(W, xs)
        for mine, theirs in zip(found, jax.grad(directional, (0, 1))(W, xs), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-11)
    tangents = (v, np.ones_like(xs))
    _, found = pb.jvp(gradient, (W, xs), tangents)
    _, expected = jax.jvp(jax.grad(loss, (0, 1)), (W, xs), tangents)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-11)
    many = np.stack([W, W.T, 2 * W])
    found = gradient.vmap((0, None), axis_size=3)(many, xs)
    expected = jax.vmap(jax.grad(loss, (0, 1)), (0, None))(many, xs)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex128"])
def test_of_other_types(dtype):
    def loss(w, xs):
        value = recurrent(CASES["plain"][0])(w, xs)
        return value.real if dtype == "complex128" else value

    w, xs = jnp.asarray(W, dtype), jnp.asarray(XS, dtype)
    tolerance = 1e-12 if dtype == "complex128" else 0.1
    for found, expected in zip(
        pb.grad(loss, (0, 1))(w, xs), jax.grad(loss, (0, 1))(w, xs), strict=True
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(
            np.asarray(found, "complex128"), np.asarray(expected, "complex128"), atol=tolerance
        )


@pytest.mark.parametrize("start", [0, 1, 2])
def test_slots_that_are_not_all_read(start):
    """The loop reads some of the slots only, or the same ones twice."""

    def loss(w, xs):
        def body(i, h):
            return jnp.tanh(h @ w + xs[i] @ w + xs[STEPS - 1 - i // 2] @ w)

        return jnp.sum(jax.lax.fori_loop(start, STEPS - 1, body, jnp.ones((BATCH, WIDTH))) ** 2)

    for found, expected in zip(
        pb.grad(loss, (0, 1))(W, XS), jax.grad(loss, (0, 1))(W, XS), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


# ------------------------------------------------------------------------------- structure


def products_in_loops(program):
    """How many products stand in bodies of loops."""
    count = 0
    for function in program.module.body.operations:
        for view in function.regions[0].blocks[0].operations:
            if view.operation.name == "stablehlo.while":
                body = view.operation.regions[1].blocks[0]
                count += sum(each.operation.name == "stablehlo.dot_general" for each in body)
    return count


def test_the_reverse_loop_keeps_the_recurrence_only():
    program = pb.trace(recurrent(CASES["plain"][0]))(W, XS)
    assert products_in_loops(program.grad(0)) == 2 + 1
    assert products_in_loops(program.grad((0, 1))) == 2 + 1


@pytest.mark.parametrize("rows", [WIDTH // 2, WIDTH, 100 * WIDTH])
def test_what_is_not_much_smaller_than_the_sum_stays_in_the_loop(rows):
    """With many rows, the product is the larger part of the work, and its factors need memory."""
    many = np.ones((STEPS, rows, WIDTH))
    assert products_in_loops(pb.trace(recurrent(CASES["plain"][0]))(W, many).grad(0)) == 2 + 3


def test_stacks_for_sums_take_no_more_room_than_those_that_are_read():
    def loss(w, h):
        def step(h, _):
            wide = jnp.tanh(jnp.concatenate([h] * 8) @ w)
            return jnp.tanh(wide.reshape(8, -1).sum(0) * h), None

        return jnp.sum(jax.lax.scan(step, h, None, length=STEPS)[0])

    w, h = array(8 * WIDTH, 8 * WIDTH), array(WIDTH)
    program = pb.trace(loss)(w, h).grad()
    np.testing.assert_allclose(program(w, h), jax.grad(loss)(w, h), rtol=1e-11, atol=1e-13)
    assert products_in_loops(program) == 1 + 2


def test_a_carry_that_the_iteration_uses_is_no_sum():
    """Its cotangent is multiplied by what is stacked, and added to itself."""

    def loss(h, columns, rows):
        def step(h, factors):
            column, row = factors
            return h + column @ (row @ h), None

        return jnp.sum(jax.lax.scan(step, h, (columns, rows))[0] ** 2)

    columns, rows = array(STEPS, WIDTH, 1, seed=3), array(STEPS, 1, WIDTH, seed=4)
    args = array(WIDTH, WIDTH), columns, rows
    for found, expected in zip(
        pb.grad(loss, (0, 1, 2))(*args), jax.grad(loss, (0, 1, 2))(*args), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
