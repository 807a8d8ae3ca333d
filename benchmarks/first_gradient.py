"""Time from a function to the first value of its gradient: trace, derive, compile and run.

    python benchmarks/first_gradient.py [--runs 5] [--only transformer]

Beside `pb.grad` stands `jax.jit(jax.grad(f))`. Each run is of a fresh function, without JAX's
caches; most of it is XLA's compilation. Beside `pb.vjp` of a fresh function, with the first call of
its map, stands `jax.vjp`, which JAX runs op by op, by ops that it has compiled in the run before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from programs import FIRST, Case
from rows import Row, Wanted, anew_in_turn, benchmark

import pullback as pb


def gradient(case: Case, grad: Callable[..., Any]) -> Callable[[], Any]:
    """Return what computes the gradient of a fresh function."""
    f, args = case.make()
    return lambda: jax.block_until_ready(grad(f)(*args))


def map_of_cotangents(case: Case, vjp: Callable[..., Any]) -> Callable[[], Any]:
    """Return what computes the VJP of a fresh function, and calls it."""
    f, (first, *rest) = case.make()

    def timed() -> Any:
        value, pull = vjp(lambda x: f(x, *rest), first)
        return jax.block_until_ready(pull(jnp.ones_like(value)))

    return timed


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for case in FIRST:
        if wanted(name := case.name):
            ours = lambda: gradient(case, pb.grad)  # noqa: B023, E731
            theirs = lambda: gradient(case, lambda f: jax.jit(jax.grad(f)))  # noqa: B023, E731
            times = anew_in_turn(ours, theirs, runs, cold=True)
            yield Row(name, *times, family="first gradient", aim=1.0)
    for case in FIRST[:3]:
        if wanted(name := f"{case.name}: vjp"):
            ours = lambda: map_of_cotangents(case, pb.vjp)  # noqa: B023, E731
            theirs = lambda: map_of_cotangents(case, jax.vjp)  # noqa: B023, E731
            times = anew_in_turn(ours, theirs, runs, cold=False)
            yield Row(name, *times, family="first vjp and its call", peer="JAX, op by op")


if __name__ == "__main__":
    benchmark(rows, runs=5)()
