"""Time to derive per-example gradients, and the gradient of a batch: ours against JAX, in turn.

    python benchmarks/batches.py [--runs 9] [--only lstm]

Cold caches; medians, and their ratio (JAX / ours). `vmap of grad` is what a user writes, traced,
derived, batched and lowered inside `jax.jit`; `program` is the module without that, by
`pb.trace(f).grad().vmap()`.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import derive
import jax
import jax.numpy as jnp

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


def measure(case: derive.Case, pair: tuple[Way, Way], runs: int) -> list[float]:
    """Median milliseconds of (ours, JAX), interleaved; the last argument is batched."""
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(runs + 1):
        for side in (0, 1) if i % 2 else (1, 0):
            f, args = case.make()
            axes = (*(None,) * (len(args) - 1), 0)
            stacked = jax.tree.map(lambda x: jnp.stack([x] * ITEMS), args[-1])
            jax.clear_caches()
            gc.collect()
            start = time.perf_counter()
            pair[side](f, args, axes, (*args[:-1], stacked))
            times[side].append((time.perf_counter() - start) * 1e3)
    return [statistics.median(each[1:]) for each in times]


@click.command()
@click.option("--runs", default=9, show_default=True, help="counted runs of each, after one more")
@click.option("--only", default="", help="rows whose name contains this")
def main(runs: int, only: str) -> None:
    """Derive batches of gradients with pullback and with JAX."""
    ratios: dict[str, list[float]] = {}
    print(f"{'':47} {'ours ms':>9} {'jax ms':>9} {'jax/ours':>9}")
    for case in derive.CASES:
        for way, pair in WAYS.items():
            name = f"{case.name}, {way}"
            if only not in name:
                continue
            ours, theirs = measure(case, pair, runs)
            ratios.setdefault(way, []).append(theirs / ours)
            print(f"{name:47} {ours:9.1f} {theirs:9.1f} {theirs / ours:9.2f}")
    for way, found in ratios.items():
        print(f"{'geometric mean, ' + way:67} {statistics.geometric_mean(found):9.2f}")


if __name__ == "__main__":
    main()
