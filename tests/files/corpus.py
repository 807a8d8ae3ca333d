"""The golden programs: write them with their numbers, and check files against the numbers.

    python -m tests.files.corpus write FOLDER
    python -m tests.files.corpus check FOLDER

`golden/format-N` was written once, when format N was released, with the oldest JAX we support;
the files of old formats must load for ever. Beside each program lie its arguments, its results
and the gradient of the sum of its results, as JAX itself computes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
import pullback_runtime
from tests.files import models


@jax.custom_jvp
def softplus(x):
    return jnp.logaddexp(x, 0.0)


softplus.defjvp(lambda x, dx: (softplus(*x), dx[0] * jax.nn.sigmoid(x[0])))


def smooth_loss(params, x, *, scale):
    hidden = softplus(x * params["w"]) + jnp.tanh(params["b"])
    return {"loss": scale * jnp.sum(hidden * jax.lax.erf(x)), "count": jnp.int32(x.size)}


def recurrent(weights, inputs):
    def step(state, value):
        state = jnp.tanh(state * weights) + softplus(value)
        return state, jnp.sum(state)

    return jax.lax.scan(step, jnp.zeros(3), inputs)


def solver(matrix, vector):
    """Rules of JAX itself: a factorisation and two triangular solves, by LAPACK."""
    symmetric = matrix @ matrix.T + 3.0 * jnp.eye(3)
    return jnp.linalg.slogdet(symmetric)[1] + vector @ jnp.linalg.solve(symmetric, vector)


TABLE = np.linspace(-1.0, 1.0, 1 << 13, dtype=np.float32)


def lookup(x):
    """A constant of 32 KiB, which a file holds outside the module's stub."""
    return jnp.sum(jnp.asarray(TABLE)[::1024] * jnp.sin(x))


MATRIX = TABLE.reshape(8, -1)


@jax.custom_vjp
def product(x):
    return x @ MATRIX


product.defvjp(lambda x: (product(x), None), lambda _, ct: (2 * (MATRIX @ ct),))


def closing_over(x):
    """A large constant of a function and of its rule, and a mark of `jax.checkpoint`."""
    return jnp.mean(jax.checkpoint(lambda x: jnp.tanh(product(jnp.sin(x))))(x))


def cases() -> Iterator[tuple[str, Any, tuple[Any, ...], dict[str, Any]]]:
    """Name, function and arguments of each golden program."""
    args, kwargs = models.arguments()
    yield "custom_rules", models.loss, args, kwargs
    yield "smooth", smooth_loss, args, kwargs
    yield "large_constant", lookup, (jnp.linspace(0.5, 1.0, 8),), {}
    yield "closing_over", closing_over, (jnp.linspace(0.5, 1.0, 8),), {}
    yield "recurrent", recurrent, (jnp.linspace(0.1, 0.9, 3), jnp.linspace(-1.0, 1.0, 5)), {}
    yield "solver", solver, (jnp.arange(9.0).reshape(3, 3) / 5, jnp.linspace(1.0, 2.0, 3)), {}


def record(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arguments, results, and the gradient of the sum of all inexact results, by JAX."""
    leaves, tree = jax.tree.flatten((args, kwargs))

    def total(*flat):
        arguments, keywords = jax.tree.unflatten(tree, flat)
        results = jax.tree.leaves(function(*arguments, **keywords))
        return sum(jnp.sum(r) for r in results if jnp.issubdtype(r.dtype, jnp.inexact))

    groups = {
        "argument": leaves,
        "result": jax.tree.leaves(function(*args, **kwargs)),
        "gradient": jax.grad(total, tuple(range(len(leaves))))(*leaves),
    }
    return {
        f"{group}{number}": np.asarray(value)
        for group, values in groups.items()
        for number, value in enumerate(values)
    }


def write(folder: Path) -> None:
    """Writes every golden program and its numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, function, args, kwargs in cases():
        pb.trace(function)(*args, **kwargs).save(folder / f"{name}.mlirbc")
        np.savez(folder / f"{name}.npz", **record(function, args, kwargs))


def stored(path: Path, group: str) -> list[np.ndarray]:
    """The arrays of a group that lie beside a program."""
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        count = sum(name.startswith(group) for name in arrays)
        return [arrays[f"{group}{number}"] for number in range(count)]


def agree(found: Any, expected: Any) -> None:
    """Raises AssertionError unless the arrays are close."""
    assert len(found) == len(expected), (len(found), len(expected))
    for each, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, wanted, rtol=2e-5, atol=1e-6)


def check_results(path: Path) -> None:
    """The program gives its stored results, in the compiler and in the runtime."""
    arguments = stored(path, "argument")
    program = pb.load(path)
    args, kwargs = jax.tree.unflatten(program.in_tree, arguments)
    agree(jax.tree.leaves(program(*args, **kwargs)), stored(path, "result"))
    agree(pullback_runtime.load(path).flat(*arguments), stored(path, "result"))


def gradient_of(path: Path) -> tuple[pb.Program, list[np.ndarray]]:
    """The reverse-mode program of a file, and its flat arguments for cotangents of one."""
    program = pb.load(path)
    args, kwargs = jax.tree.unflatten(program.in_tree, stored(path, "argument"))
    cotangents = [np.ones(a.shape, a.dtype) for a in program.out_avals if a.dtype.kind == "f"]
    return program.vjp(), [*jax.tree.leaves(args), *cotangents, *jax.tree.leaves(kwargs)]


def check_gradients(path: Path) -> None:
    """The derivative gives the stored gradients with respect to the positional arguments."""
    derived, arguments = gradient_of(path)
    found = pullback_runtime.compile(derived.module)(*derived.constants, *arguments)[
        len(stored(path, "result")) :
    ]
    expected = stored(path, "gradient")
    agree(found, expected[: len(found)])
    assert len(found) >= len(expected) - 1, "all but one keyword argument"


def check(folder: Path) -> None:
    """Checks results and gradients of every program in a folder."""
    paths = sorted(folder.glob("*.mlirbc"))
    assert paths, f"no programs in {folder}"
    for path in paths:
        check_results(path)
        check_gradients(path)
        print(f"jax {jax.__version__}: {path.name} gives its results and gradients", flush=True)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
