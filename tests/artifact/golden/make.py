"""Writes the golden files of the present format: `python -m tests.artifact.golden.make`.

Run it once per released format, with the oldest JAX we support, and never again for a format:
the files of old formats must load for ever. Beside each program lie its arguments, its results
and its derivatives, as JAX itself computes them.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from pullback_runtime import _container
from tests.artifact import models

FOLDER = Path(__file__).parent


@jax.custom_jvp
def softplus(x):
    return jnp.logaddexp(x, 0.0)


softplus.defjvp(lambda x, dx: (softplus(*x), dx[0] * jax.nn.sigmoid(x[0])))


def recurrent(weights, inputs):
    def step(state, value):
        state = jnp.tanh(state * weights) + softplus(value)
        return state, jnp.sum(state)

    return jax.lax.scan(step, jnp.zeros(3), inputs)


def solver(matrix, vector):
    """Rules of JAX itself: a factorisation and two triangular solves."""
    symmetric = matrix @ matrix.T + 3.0 * jnp.eye(3)
    return jnp.linalg.slogdet(symmetric)[1] + vector @ jnp.linalg.solve(symmetric, vector)


def cases():
    """Name, function and arguments of each golden program."""
    args, kwargs = models.arguments()
    yield "loss", models.loss, args, kwargs
    yield "recurrent", recurrent, (jnp.linspace(0.1, 0.9, 3), jnp.linspace(-1.0, 1.0, 5)), {}
    yield "solver", solver, (jnp.arange(9.0).reshape(3, 3) / 5, jnp.linspace(1.0, 2.0, 3)), {}


def record(function, args, kwargs):
    """Arguments, results, and the gradient of the sum of all inexact results, by JAX."""
    leaves, tree = jax.tree.flatten((args, kwargs))

    def total(*flat):
        arguments, keywords = jax.tree.unflatten(tree, flat)
        results = jax.tree.leaves(function(*arguments, **keywords))
        return sum(jnp.sum(r) for r in results if jnp.issubdtype(r.dtype, jnp.inexact))

    gradients = jax.grad(total, tuple(range(len(leaves))))(*leaves)
    results = jax.tree.leaves(function(*args, **kwargs))
    groups = {"argument": leaves, "result": results, "gradient": gradients}
    return {
        f"{group}{number}": np.asarray(value)
        for group, values in groups.items()
        for number, value in enumerate(values)
    }


def main() -> None:
    folder = FOLDER / f"format-{_container.FORMAT_VERSION}"
    folder.mkdir(exist_ok=True)
    for name, function, args, kwargs in cases():
        pb.trace(function)(*args, **kwargs).save(folder / f"{name}.mlirbc")
        np.savez(folder / f"{name}.npz", **record(function, args, kwargs))


if __name__ == "__main__":
    main()
