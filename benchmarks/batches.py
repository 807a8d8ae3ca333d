"""Time to derive and lower per-example gradients and batches, beside JAX, with cold caches.

    python benchmarks/batches.py [--runs 5] [--only lstm]

`vmap of grad` and `grad of vmap` are what a user writes, traced, derived, batched and lowered
inside `jax.jit`; `program` is the module without that, by `pb.trace(f).grad().vmap()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import programs
from rows import Row, Wanted, anew_in_turn, benchmark

import pullback as pb

ITEMS = 8

Way = Callable[[Any, Any, Any, Any], Any]

WAYS: dict[str, tuple[Way, Way]] = {
    "vmap of grad": (
        lambda f, args, axes, batch: jax.jit(jax.vmap(pb.grad(f), axes)).lower(*batch),
        lambda f, args, axes, batch: jax.jit(jax.vmap(jax.grad(f), axes)).lower(*batch),
    ),
    "grad of vmap": (
        lambda f, args, axes, batch: jax.jit(pb.grad(mean(f, axes))).lower(*batch),
        lambda f, args, axes, batch: jax.jit(jax.grad(mean(f, axes))).lower(*batch),
    ),
    "program": (
        lambda f, args, axes, batch: pb.trace(f)(*args).grad().vmap(axes, axis_size=ITEMS),
        lambda f, args, axes, batch: jax.jit(jax.vmap(jax.grad(f), axes)).lower(*batch),
    ),
}


def mean(f: Any, axes: Any) -> Any:
    return lambda *args: jnp.mean(jax.vmap(f, axes)(*args))


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for case in programs.CASES:
        for way, pair in WAYS.items():
            if wanted(name := f"{case.name}, {way}"):
                both = (lambda side=side: derived(case, side) for side in pair)  # noqa: B023
                yield Row(name, *anew_in_turn(*both, runs, cold=True), family=way)


def derived(case: programs.Case, way: Way) -> Callable[[], Any]:
    """Make a function whose last argument is a batch; return what is timed."""
    f, args = case.make()
    axes = (*(None,) * (len(args) - 1), 0)
    stacked = jax.tree.map(lambda x: jnp.stack([x] * ITEMS), args[-1])
    return lambda: way(f, args, axes, (*args[:-1], stacked))


if __name__ == "__main__":
    benchmark(rows, runs=5)()
