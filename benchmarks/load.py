"""Time to open a saved file, digest checked, against a bare parse of the same file by StableHLO.

    python benchmarks/load.py [--runs 51]

All read the file from disk; interleaved, medians, and ratios to the bare parse. `load` is
`pullback.load`, which also makes a Program of the module: trees, types, rules. The promise is 1.2.
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


def with_constants(count: int, kibibytes: int) -> Callable[[], Any]:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(kibibytes << 8).astype(np.float32) for _ in range(count)]
    return lambda: (lambda x: sum(jnp.sum(jnp.sin(each * x)) for each in arrays), (np.float32(1),))


def with_arguments(count: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    arrays = {f"w{i}": derive.array(i % 7 + 1, 3) for i in range(count)}
    return lambda arrays: sum(map(jnp.sum, arrays.values())), (arrays,)


CASES: dict[str, Callable[[], Any]] = {
    "a sine": lambda: (jnp.sin, (np.float32(1),)),
    "mlp, 20 layers": derive.mlp,
    "chain, 1000 ops": derive.chain,
    "transformer, 4 layers": lambda: derive.transformer(4),
    "200 uses of 10 rules": derive.rules,
    "a sum of 300 arguments": lambda: with_arguments(300),
    "20 constants of 64 KiB": with_constants(20, 64),
    "one constant of 64 MiB": with_constants(1, 64 << 10),
}


def bare(path: Path) -> Any:
    context = _jax.context()
    with context, ir.Location.unknown(context):
        return stablehlo.deserialize_portable_artifact(context, path.read_bytes())


def whole(path: Path) -> Any:
    return open_module(path)


def measure(path: Path, runs: int) -> list[float]:
    """Milliseconds to open the file, to parse it alone, and to load it."""
    times: dict[Any, list[float]] = {whole: [], bare: [], pb.load: []}
    for i in range(runs + 1):
        for open_file in list(times)[:: 1 if i % 2 else -1]:
            start = time.perf_counter()
            open_file(path)
            times[open_file].append((time.perf_counter() - start) * 1e3)
    return [statistics.median(each[1:]) for each in times.values()]


@click.command()
@click.option("--runs", default=51, show_default=True, help="counted runs of each")
def main(runs: int) -> None:
    """Opening saved files, next to a bare parse."""
    print(f"{'file':24} {'KiB':>9} {'ours ms':>9} {'bare ms':>9} {'ours/bare':>9} {'load/bare':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in CASES.items():
            function, args = make()
            path = Path(folder) / "program.mlirbc"
            pb.trace(function)(*args).save(path)
            ours, theirs, loaded = measure(path, runs)
            size = os.path.getsize(path) / 1024
            ratios = f"{ours / theirs:9.2f} {loaded / theirs:9.2f}"
            print(f"{name:24} {size:9.0f} {ours:9.2f} {theirs:9.2f} {ratios}")


if __name__ == "__main__":
    main()
