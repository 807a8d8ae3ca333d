"""Run time of sparse derivatives, beside dense ones of JAX and, where it is installed, asdex.

    python benchmarks/sparse.py [--runs 20] [--only chain]

`found` is from the function to its pattern and colors. asdex needs a JAX that it imports with.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import programs
import run
from rows import Row, Wanted, anew_in_turn, benchmark, in_turn

import pullback as pb

Function = Callable[[Any], Any]


def chain(x: Any) -> Any:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def grid(x: Any) -> Any:
    u = x.reshape(side := math.isqrt(x.size), side)
    differences = jnp.diff(u, axis=0)[:, 1:] ** 2 + jnp.diff(u, axis=1)[1:] ** 2
    return jnp.sum(jnp.sqrt(1 + differences))


def brusselator(state: Any) -> Any:
    u, v = state.reshape(2, side := math.isqrt(state.size // 2), side)

    def spread(c: Any) -> Any:
        return 0.1 * (sum(jnp.roll(c, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * c)

    reaction = u**2 * v
    return jnp.stack([1 + reaction - 4.4 * u + spread(u), 3.4 * u - reaction + spread(v)]).ravel()


CASES: dict[str, tuple[Function, str, int]] = {
    "Hessian of a chain of 1000": (chain, "hessian", 1000),
    "Hessian of a grid of 30x30": (grid, "hessian", 900),
    "Jacobian of a Brusselator of 16x16": (brusselator, "jacobian", 512),
}
"""Functions, which derivative, and of how many variables."""


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for name in filter(wanted, CASES):
        yield from measure(name, runs)


def measure(name: str, runs: int) -> Iterator[Row]:
    function, derivative, size = CASES[name]
    x = jax.device_put(1 + 0.1 * programs.array(size))
    is_hessian = derivative == "hessian"

    def found() -> pb.Program:
        traced = pb.trace(lambda x: function(x))(x)
        return traced.sparse_hessian() if is_hessian else traced.sparse_jacobian()

    program = found()
    pattern = program.pattern
    assert pattern is not None
    ours = jax.jit(program).lower(x).compile()
    dense = jax.jit((jax.hessian if is_hessian else jax.jacfwd)(function)).lower(x).compile()
    run.checked(ours(x), dense(x)[pattern.rows, pattern.cols])
    times = in_turn(
        lambda: jax.block_until_ready(ours(x)), lambda: jax.block_until_ready(dense(x)), runs
    )
    yield Row(name, *times, family="beside dense", peer="JAX, dense", aim=1.0)
    if importlib.util.find_spec("asdex") is None:
        return
    import asdex

    colored = asdex.hessian_coloring if is_hessian else asdex.jacobian_coloring
    of_asdex = asdex.hessian_from_coloring if is_hessian else asdex.jacobian_from_coloring
    theirs = jax.jit(of_asdex(function, colored(function, x))).lower(x).compile()
    times = in_turn(
        lambda: jax.block_until_ready(ours(x)), lambda: jax.block_until_ready(theirs(x)), runs
    )
    yield Row(f"{name}: beside asdex", *times, family="beside asdex", peer="asdex", aim=1.0)
    times = anew_in_turn(
        lambda: found,
        lambda: lambda: colored(lambda x: function(x), x),
        min(runs, 5),
        cold=False,
    )
    yield Row(f"{name}: found", *times, family="found", peer="asdex", aim=1.0)


if __name__ == "__main__":
    benchmark(rows, runs=20)()
