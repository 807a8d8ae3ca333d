"""Run time of gradients, beside `jax.jit(jax.grad(enzyme_jax_ir()(f)))`.

    make bench-peers

Enzyme-JAX differentiates StableHLO, too, and rewrites it before and after; these are the passes
that it runs by default. It is installed into an environment of its own. It takes turns with
pullback and JAX, so the rows `beside JAX` are of the same runs. What it does not differentiate is
left out: calls of LAPACK, and the loops, where its process ends.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import click
import jax
import run
from rows import Row, Wanted, benchmark, in_rotation

import pullback as pb


def samples(name: str, runs: int) -> list[list[float]] | None:
    """Return the times of a gradient by pullback, JAX and Enzyme-JAX, which are compared.

    None if Enzyme-JAX has no derivative of an op.
    """
    from enzyme_ad.jax import enzyme_jax_ir

    f, args = run.CASES[name]()
    args = jax.device_put(args)
    try:
        lowered = jax.jit(jax.grad(enzyme_jax_ir()(f))).lower(*args)
    except ValueError:
        return None
    gradients = (
        pb.trace(f)(*args).grad().compile(),
        jax.jit(jax.grad(f)).lower(*args).compile(),
        lowered.compile(),
    )
    for each in gradients:
        run.checked(each(*args), gradients[1](*args))
    calls = [lambda g=g: jax.block_until_ready(g(*args)) for g in gradients]
    return in_rotation(calls, runs)


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    for name in filter(wanted, run.CASES):
        if importlib.util.find_spec("enzyme_ad") is None:
            raise click.ClickException(
                "no enzyme_ad here: `make bench-peers` makes an environment that has it"
            )
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            try:
                found = alone.submit(samples, name, runs).result()
            except BrokenProcessPool:
                found = None
        if found is None:
            print(f"{name:52} Enzyme-JAX does not differentiate it")
            continue
        ours, others, enzyme = found
        yield Row(name, ours, enzyme, family="beside Enzyme-JAX", peer="Enzyme-JAX")
        yield Row(f"{name}: beside JAX", ours, others, family="beside JAX")


if __name__ == "__main__":
    benchmark(rows, runs=40)()
