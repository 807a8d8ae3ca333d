"""Time to open a saved file, beside a bare parse of it by StableHLO.

    python benchmarks/load.py [--runs 51] [--only mlp]

All read the file from disk. `open` is digest, layout and parse, `load` is `pullback.load`, which
makes a program of the module; `looked at` is that, and all that a program leaves for later: trees
and types of arguments, constants, variants for further platforms. These trust the file;
`untrusted` is `load` by the helper process, which is there already.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import programs
from rows import Row, Wanted, benchmark, in_turn

import pullback as pb
from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback_runtime.files._artifact import open_module

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def with_constants(count: int, kibibytes: int) -> Any:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(kibibytes << 8).astype(np.float32) for _ in range(count)]
    return pb.trace(lambda x: sum(jnp.sum(jnp.sin(each * x)) for each in arrays))(np.float32(1))


def with_arguments(count: int, function: Callable[..., Any]) -> Any:
    arrays = {f"w{i}": programs.array(i % 7 + 1, 3) for i in range(count)}
    return pb.trace(function)(arrays)


def with_symbols() -> Any:
    (b,) = jax.export.symbolic_shape("b")
    weights, batch = [programs.array(8, 8)] * 20, jax.ShapeDtypeStruct((b, 8), np.float32)
    return pb.trace(lambda weights, x: functools.reduce(lambda x, w: jnp.tanh(x @ w), weights, x))(
        weights, batch
    )


def for_platforms() -> Any:
    return pb.trace(jnp.linalg.cholesky, platforms=PLATFORMS)(np.eye(3, dtype=np.float32))


def traced(case: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    function, args = case
    return pb.trace(function)(*args)


CASES: dict[str, Callable[[], Any]] = {
    "a sine": lambda: pb.trace(jnp.sin)(np.float32(1)),
    "mlp, 20 layers": lambda: traced(programs.mlp()),
    "chain, 1000 ops": lambda: traced(programs.chain()),
    "transformer, 4 layers": lambda: traced(programs.transformer(4)),
    "200 uses of 10 rules": lambda: traced(programs.rules()),
    "a sum of 300 arguments": lambda: with_arguments(300, lambda w: sum(map(jnp.sum, w.values()))),
    "300 arguments, returned": lambda: with_arguments(300, lambda w: w),
    "symbolic mlp, 20 layers": with_symbols,
    "cholesky, 4 platforms": for_platforms,
    "one constant of 256 KiB": lambda: with_constants(1, 256),
    "one constant of 4 MiB": lambda: with_constants(1, 4 << 10),
    "20 constants of 64 KiB": lambda: with_constants(20, 64),
    "300 constants of 16 KiB": lambda: with_constants(300, 16),
    "100 constants of 64 KiB": lambda: with_constants(100, 64),
    "20 constants of 256 KiB": lambda: with_constants(20, 256),
    "16 constants of 1 MiB": lambda: with_constants(16, 1 << 10),
    "one constant of 64 MiB": lambda: with_constants(1, 64 << 10),
}


def bare(path: Path) -> Any:
    context = _jax.context()
    with context, ir.Location.unknown(context):
        return stablehlo.deserialize_portable_artifact(context, path.read_bytes())


def looked_at(path: Path) -> Any:
    program = pb.load(path, trusted=True)
    if not isinstance(program, pb.Program):  # of symbols
        return program.to_exported()
    return [(each.in_avals, tuple(each.constants)) for each in (program, *program.variants)]


WAYS = {
    "open": (functools.partial(open_module, trusted=True), None),
    "load": (functools.partial(pb.load, trusted=True), 1.2),
    "looked at": (looked_at, None),
    "untrusted": (pb.load, None),
}
"""What is measured beside a bare parse, and the ratio that is promised."""


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.mlirbc"
        for name, make in CASES.items():
            ways = {w: pair for w, pair in WAYS.items() if wanted(f"{name}: {w}")}
            if ways:
                make().save(path)
            for way, (open_file, aim) in ways.items():
                times = in_turn(lambda: open_file(path), lambda: bare(path), runs)  # noqa: B023
                yield Row(f"{name}: {way}", *times, family=way, peer="a bare parse", aim=aim)


if __name__ == "__main__":
    benchmark(rows, runs=51)()
