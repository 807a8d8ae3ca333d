"""Time to open a saved file, digest checked, against a bare parse of the same file by StableHLO.

    python benchmarks/load.py [--runs 9]

Both read the file from disk; interleaved, medians, and the ratio ours / bare. The promise is 1.2.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import derive
import jax.numpy as jnp
import numpy as np

import pullback as pb
from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback_runtime._artifact import open_module


def with_constant(mebibytes: int) -> Callable[[], Any]:
    weights = np.random.default_rng(0).standard_normal((mebibytes << 18,)).astype(np.float32)
    return lambda: (lambda x: jnp.sum(jnp.sin(weights * x)), (np.float32(1),))


CASES: dict[str, Callable[[], Any]] = {
    "mlp, 20 layers": derive.mlp,
    "chain, 1000 ops": derive.chain,
    "transformer, 4 layers": lambda: derive.transformer(4),
    "one constant of 64 MiB": with_constant(64),
}


def bare(path: Path) -> Any:
    context = _jax.context()
    with context, ir.Location.unknown(context):
        return stablehlo.deserialize_portable_artifact(context, path.read_bytes())


def whole(path: Path) -> Any:
    return open_module(path)


def measure(path: Path, runs: int) -> tuple[float, float]:
    times: dict[Any, list[float]] = {whole: [], bare: []}
    for i in range(runs + 1):
        for open_file in (whole, bare) if i % 2 else (bare, whole):
            start = time.perf_counter()
            open_file(path)
            times[open_file].append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[whole][1:]), statistics.median(times[bare][1:])


@click.command()
@click.option("--runs", default=9, show_default=True, help="counted runs of each")
def main(runs: int) -> None:
    """Opening saved files, next to a bare parse."""
    print(f"{'file':24} {'KiB':>9} {'ours ms':>9} {'bare ms':>9} {'ours/bare':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in CASES.items():
            function, args = make()
            path = Path(folder) / "program.mlirbc"
            pb.trace(function)(*args).save(path)
            ours, theirs = measure(path, runs)
            size = os.path.getsize(path) / 1024
            print(f"{name:24} {size:9.0f} {ours:9.2f} {theirs:9.2f} {ours / theirs:9.2f}")


if __name__ == "__main__":
    main()
