"""`custom_linear_solve` as iterative solvers use it: auxiliary results, and trees on the right."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
from pullback import artifact
from tests.api.checks import assert_agrees

A, B = jnp.array([[1.2, 0.3], [-0.4, 0.9]]), jnp.array([0.7, -1.1])
X, Y = jnp.array([0.5, 0.2]), jnp.array([-0.3, 0.8])


def descend(matvec, b):
    """Two steps of conjugate gradients, which are not linear in `b`, and what is left of it."""

    def step(_, state):
        x, p, r = state
        alpha = (r @ r) / (p @ matvec(p))
        rest = r - alpha * matvec(p)
        return x + alpha * p, rest + (rest @ rest) / (r @ r) * p, rest

    x, _, rest = jax.lax.fori_loop(0, 2, step, (jnp.zeros_like(b), b, b))
    return x, {"rest": rest, "steps": 2}


def solved(a, b):
    x, _ = jax.lax.custom_linear_solve(
        lambda v: a.T @ (a @ v) + v, b, descend, symmetric=True, has_aux=True
    )
    return jnp.sum(x**3)


def solved_and_aux(a, b):
    x, aux = jax.lax.custom_linear_solve(
        lambda v: a.T @ (a @ v) + v, b, descend, symmetric=True, has_aux=True
    )
    return jnp.sum(x**3) + jnp.sum(aux["rest"] + 1.0) * aux["steps"]


@pytest.mark.parametrize("function", [solved, solved_and_aux])
@pytest.mark.parametrize("saved", [False, True])
def test_auxiliary_results_of_a_solver_that_is_not_linear(function, saved):
    ours = pb.trace(function)(A, B)
    ours = pb.load(artifact.serialize(ours)) if saved else ours
    both, tangents = (0, 1), (B * A, A @ B)
    assert_agrees(pb.grad(ours, both)(A, B), jax.grad(function, both)(A, B), 1e-4)
    expected = jax.jvp(function, (A, B), tangents)
    assert_agrees(pb.jvp(ours, (A, B), tangents), expected, 1e-4)
    expected = jax.jvp(jax.grad(function, both), (A, B), tangents)
    assert_agrees(pb.jvp(pb.grad(ours, both), (A, B), tangents), expected, 1e-3)


def solved_tree(x, y):
    """JAX refuses to differentiate by a part of the right-hand side."""

    def matvec(v):
        return {"x": 2.0 * v["x"] + v["y"], "y": v["x"] + 3.0 * v["y"]}

    def solve(_, b):
        return {"x": (3.0 * b["x"] - b["y"]) / 5.0, "y": (2.0 * b["y"] - b["x"]) / 5.0}

    found = jax.lax.custom_linear_solve(matvec, {"x": x, "y": y}, solve, symmetric=True)
    return jnp.sum(found["x"] ** 2 * found["y"])


@pytest.mark.parametrize("position", [0, 1, (0, 1)])
@pytest.mark.parametrize("saved", [False, True])
def test_a_part_of_the_right_hand_side_may_be_constant(position, saved):
    ours = pb.trace(solved_tree)(X, Y)
    ours = pb.load(artifact.serialize(ours)) if saved else ours
    both = jax.grad(solved_tree, (0, 1))(X, Y)
    expected = both if isinstance(position, tuple) else both[position]
    assert_agrees(pb.grad(ours, position)(X, Y), expected)
    if position == 0:
        assert_agrees(pb.jvp(lambda x: ours(x, Y), (X,), (Y,))[1], jnp.vdot(both[0], Y))


def solved_tree_in_steps(x, y):
    """The solver is not linear in the right-hand sides: what is transposed is the rule."""
    found = jax.scipy.sparse.linalg.cg(lambda v: (2.0 * v[0] + v[1], v[0] + 3.0 * v[1]), (x, y))[0]
    return jnp.sum(jnp.sin(found[0] * x))


@pytest.mark.parametrize("position", [0, (0, 1)])
def test_a_file_has_the_transpose_for_all_right_hand_sides(position):
    loaded = pb.load(artifact.serialize(pb.trace(solved_tree_in_steps)(X, Y)))
    expected = jax.grad(solved_tree_in_steps, position)(X, Y)
    assert_agrees(loaded.grad(position)(X, Y), expected, 1e-4)
