"""Cotangents of several slices of one value: side by side, with gaps, on top of each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb

pytestmark = pytest.mark.usefixtures("float64")

X = np.random.default_rng(0).standard_normal((6, 8))


def of(*slices):
    """A function of some slices of its argument, each in another way."""
    return lambda x: sum(jnp.sum((i + 1) * jnp.sin(x[s]) ** 2) for i, s in enumerate(slices))


CASES = {
    "the whole": of(np.s_[:, 0:3], np.s_[:, 3:4], np.s_[:, 4:8]),
    "not in order": of(np.s_[4:6], np.s_[0:1], np.s_[1:4]),
    "gaps": of(np.s_[:, 1:3], np.s_[:, 5:6]),
    "one of them empty": of(np.s_[0:3], np.s_[3:3], np.s_[3:6]),
    "one of them twice": of(np.s_[0:3], np.s_[0:3], np.s_[3:6]),
    "overlapping": of(np.s_[0:4], np.s_[2:6]),
    "all of it, and a part": of(np.s_[:], np.s_[2:6]),
    "along two dimensions": of(np.s_[0:2, 0:4], np.s_[2:6, 4:8]),
    "along two dimensions, touching": of(np.s_[0:2], np.s_[2:6, 0:4], np.s_[2:6, 4:8]),
    "strided": of(np.s_[0:6:2], np.s_[1:6:2], np.s_[:, 2:4]),
    "and the value itself": lambda x: of(np.s_[0:3], np.s_[3:6])(x) + jnp.sum(x**3),
    "and a slot": lambda x: of(np.s_[0:3], np.s_[3:6])(x) + jnp.sum(jnp.cos(x[jnp.argmax(x[0])])),
    "of what is computed": lambda x: of(np.s_[:, 0:4], np.s_[:, 4:8])(jnp.tanh(x) * x),
    "rolled": lambda x: jnp.sum(x * jnp.roll(x, 2, 0) * jnp.roll(x, -3, 1)),
    "neighbours": lambda x: jnp.sum(jnp.sin(x[1:] - x[:-1]) + x[1:] * x[:-1]) + jnp.sum(x[2, 3]),
    "edges": lambda x: jnp.sum(jnp.pad(x, 1, mode="edge")[1:] ** 2),
    "reflected, and a slot": lambda x: (
        jnp.sum(jnp.pad(x, 2, mode="reflect")[2:] ** 3) + jnp.sum(jnp.cos(x[jnp.argmax(x[0])]))
    ),
    "one result unused": lambda x: jnp.sum(jnp.split(jnp.exp(x), 4, axis=1)[2]),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_jax(name):
    f = CASES[name]
    np.testing.assert_allclose(pb.grad(f)(X), jax.grad(f)(X), rtol=1e-12, atol=1e-13)
    found = pb.grad(lambda x: jnp.sum(jnp.cos(pb.grad(f)(x))))(X)
    expected = jax.grad(lambda x: jnp.sum(jnp.cos(jax.grad(f)(x))))(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["the whole", "gaps", "overlapping", "strided"])
def test_in_a_loop(name):
    """What the loop carries, and what it has from outside."""
    f = CASES[name]

    def loss(x, y):
        def step(_, h):
            return jnp.tanh(h) * (1 + f(h)) + f(y) * y

        return jnp.sum(jax.lax.fori_loop(0, 3, step, x))

    args = X / 5, X / 7
    for found, expected in zip(
        pb.grad(loss, (0, 1))(*args), jax.grad(loss, (0, 1))(*args), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def ops(f, name):
    return str(pb.trace(f)(X).grad()).count(f"stablehlo.{name} ")


def test_parts_side_by_side_are_one_concatenation():
    for name in ("the whole", "not in order", "gaps"):
        assert ops(CASES[name], "concatenate") == 1
        assert not ops(CASES[name], "pad") + ops(CASES[name], "dynamic_update_slice")
    assert not ops(CASES["overlapping"], "concatenate")


def test_parts_that_are_most_of_the_whole_are_padded_and_small_ones_added_in_place():
    """XLA makes one loop of pads and additions, and one of each update."""
    expected = {"rolled": (4, 0), "neighbours": (2, 1), "overlapping": (2, 0)}
    expected["all of it, and a part"] = 1, 0  # of two thirds
    for name, counts in expected.items():
        f = CASES[name]
        assert (ops(f, "pad"), ops(f, "dynamic_update_slice")) == counts, name


def test_few_parts_are_added_to_a_slice_in_one_pass():
    """A slice has no memory: an update in place copies it, and XLA fuses no two."""
    f = CASES["edges"]
    assert (ops(f, "pad"), ops(f, "dynamic_update_slice")) == (3, 0)  # one for [1:], two edges
    assert ops(f, "concatenate") == 3  # two of the pad, and of its cotangent along the rows


def taken(x, start, size):
    return lax.dynamic_slice(x, (start,), (size,), allow_negative_indices=False)


def put(x, part, start):
    return lax.dynamic_update_slice(x, part, (start,), allow_negative_indices=False)


@pytest.mark.parametrize(("size", "written", "read"), [(2, 1, 1), (2, 1, 2), (2, 5, 9), (3, 1, 1)])
@pytest.mark.parametrize("change", [lambda v: v + 1, jnp.sin, lambda v: v[::-1]])
def test_a_slice_that_is_read_and_overwritten(size, written, read, change):
    """What is added behind the zeros of an update takes their place, if it lies where they do."""

    def f(x, i, j):
        part = change(taken(x, j, size))[:2]
        return jnp.sum(jnp.exp(put(x, part, i)) * jnp.arange(6.0))

    def elsewhere(x, i, j):
        """The slice that is added is of the right cotangent, and of another place."""
        moved = put(jnp.arange(6.0), taken(x, i, 2), j)
        return jnp.sum(jnp.exp(put(x, jnp.ones(2), i) + moved))

    x = jnp.linspace(0.1, 1.0, 6)
    for g in (f, elsewhere):
        for first, second in ((written, read), (read, written)):
            expected = jax.grad(g)(x, first, second)
            np.testing.assert_allclose(pb.grad(g)(x, first, second), expected, rtol=1e-6)
