"""Reverse mode of loops over trip counts: time and memory grow linearly at most.

    python benchmarks/loops.py [--runs 5]

Prints, for each kind of loop and trip count n, the run time of the gradient, that time per
iteration, and the temporary memory of the compiled gradient. The column `jax` is JAX's time where
it has one: it refuses the reverse mode of a loop whose condition depends on data.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

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


def seconds(f: Function, args: tuple[Any, ...], runs: int) -> float:
    jax.block_until_ready(f(*args))
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        jax.block_until_ready(f(*args))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def theirs(loss: Function, args: tuple[Any, ...], runs: int) -> str:
    try:
        return f"{seconds(jax.jit(jax.grad(loss)), args, runs) * 1e3:10.3f}"
    except ValueError:
        return f"{'refuses':>10}"


@click.command()
@click.option("--runs", default=5, show_default=True, help="counted runs of each")
@click.option("--most", default=COUNTS[-1], show_default=True, help="largest trip count")
def main(runs: int, most: int) -> None:
    """Time and memory of gradients of loops."""
    print(f"{'loop':10} {'n':>6} {'ours ms':>10} {'jax ms':>10} {'us / step':>10} {'temp KiB':>10}")
    for make in (scan, fori, bounded, unbounded, penalty):
        for n in (n for n in COUNTS if n <= most):
            args = (np.full(WIDTH, 0.5, np.float32), np.ones((n, WIDTH), np.float32))
            loss = make(n)
            alike = penalty(n, jax) if make is penalty else loss
            gradient = pb.trace(loss)(*args).grad().compile()
            ours = seconds(gradient, args, runs)
            memory = gradient.memory().temporaries / 1024
            print(
                f"{make.__name__:10} {n:6} {ours * 1e3:10.3f} {theirs(alike, args, runs)} "
                f"{ours / n * 1e6:10.2f} {memory:10.1f}"
            )


if __name__ == "__main__":
    main()
