"""Run time of the gradients of loops of 10 to 10,000 iterations, beside JAX's.

    python benchmarks/loops.py [--runs 5] [--only scan]

The times of a kind of loop show that they grow linearly at most. JAX refuses the reverse mode of a
loop whose condition depends on data: beside it stands a scan of as many iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rows import Row, Wanted, benchmark, in_turn

import pullback as pb

WIDTH = 64
COUNTS = (10, 100, 1000, 10000)

Function = Callable[..., Any]


def scan(n: int) -> Function:
    """Inputs sliced and outputs stacked at each step."""

    def loss(w, xs):
        def step(h, x):
            h = jnp.tanh(w * h + x)
            return h, h

        return jnp.sum(lax.scan(step, jnp.zeros(WIDTH), xs)[1] ** 2)

    return loss


def fori(n: int) -> Function:
    """Slices of an array that the loop does not change."""

    def loss(w, xs):
        def body(i, h):
            return jnp.tanh(w * h + lax.dynamic_index_in_dim(xs, i, keepdims=False))

        return jnp.sum(lax.fori_loop(0, n, body, jnp.zeros(WIDTH)))

    return loss


def bounded(n: int) -> Function:
    """A condition that depends on data, with a bound on the iterations."""

    def loss(w, xs):
        def step(c):
            return c[0] + jnp.minimum(jnp.abs(c[1][0]) + 1.0, 1.0), jnp.tanh(w * c[1] + xs[0])

        start = (0.0, jnp.zeros(WIDTH))
        return jnp.sum(pb.bounded_while_loop(lambda c: c[0] < n, step, start, n)[1])

    return loss


def unbounded(n: int) -> Function:
    """A condition that depends on data: checkpoints, in fixed memory."""

    def loss(w, xs):
        def step(c):
            return c[0] + jnp.minimum(jnp.abs(c[1][0]) + 1.0, 1.0), jnp.tanh(w * c[1] + xs[0])

        return jnp.sum(lax.while_loop(lambda c: c[0] < n, step, (0.0, jnp.zeros(WIDTH)))[1])

    return loss


def penalty(n: int, library: Any = pb) -> Function:
    """Gradients of each item of a batch, differentiated again: reverse mode of a batch of loops."""

    def of_one(column, w):
        def step(h, x):
            h = jnp.tanh(w * h + x)
            return h, h

        return jnp.sum(lax.scan(step, 0.0, column)[1] ** 2)

    def loss(w, xs):
        return jnp.sum(library.vmap(library.grad(of_one), (1, 0))(xs, w) ** 2)

    return loss


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for make in (scan, fori, bounded, unbounded, penalty):
        for n in COUNTS:
            name = f"{make.__name__}, {n} iterations"
            if wanted(name):
                yield measure(name, make, n, runs)


def measure(name: str, make: Callable[..., Function], n: int, runs: int) -> Row:
    args = (np.full(WIDTH, 0.5, np.float32), np.ones((n, WIDTH), np.float32))
    loss = make(n)
    gradient = pb.trace(loss)(*args).grad().compile()
    refused = make in (bounded, unbounded)
    alike = jax.jit(jax.grad(scan(n) if refused else penalty(n, jax) if make is penalty else loss))
    times = in_turn(
        lambda: jax.block_until_ready(gradient(*args)),
        lambda: jax.block_until_ready(alike(*args)),
        runs,
    )
    peer = "JAX on a scan" if refused else "JAX"
    return Row(name, *times, family=make.__name__, peer=peer)


if __name__ == "__main__":
    benchmark(rows, runs=5)()
