"""Peak memory of saving and of loading a model that is one array of a gigabyte, over its size.

    python benchmarks/save_memory.py [--only directly]

The array is closed over directly, in a nested `jax.jit`, and in a `custom_vjp` with its rules. Each
step runs in a process of its own, that has saved and loaded a small file before. Saving counts the
model itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rows import Row, Wanted, benchmark

import pullback as pb

COLUMNS = 1 << 8
SIZE = 1 << 30


def directly(weights: Any) -> Callable[..., Any]:
    return lambda x: jnp.sum(jnp.sin(weights @ x))


def in_a_nested_jit(weights: Any) -> Callable[..., Any]:
    inner = jax.jit(lambda x: jnp.sin(weights @ x))
    return lambda x: jnp.sum(inner(x))


def in_a_custom_vjp(weights: Any) -> Callable[..., Any]:
    @jax.custom_vjp
    def product(x):
        return weights @ x

    product.defvjp(lambda x: (weights @ x, None), lambda _, ct: (ct @ weights,))
    return lambda x: jnp.sum(jnp.sin(product(x)))


MODELS = {each.__name__: each for each in (directly, in_a_nested_jit, in_a_custom_vjp)}


def traced(model: str, size: int) -> Any:
    make = jax.jit(lambda: jnp.arange(size // 4, dtype=jnp.float32).reshape(-1, COLUMNS))
    return pb.trace(MODELS[model](make()))(jnp.ones(COLUMNS))


def peak() -> int:
    """Bytes of resident memory that this process has had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def measure(action: str, model: str, path: str, size: int) -> float:
    """Saves or loads a model in this process; the growth of its peak, over the model's size."""
    traced(model, 1 << 16).save(path + ".small")
    pb.load(path + ".small").grad()(jnp.ones(COLUMNS))
    before = peak()
    if action == "save":
        traced(model, size).save(path)
    else:
        program = pb.load(path)
        assert program.arg_paths == ("x",)
    return (peak() - before) / size


def elsewhere(*arguments: Any) -> float:
    """The same in a new process."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", *map(str, arguments)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.mlirbc")
        for model in MODELS:
            for action in ("save", "load"):
                name = f"{model.replace('_', ' ')}: {action}"
                if wanted(name):  # what was saved last is loaded
                    peaks = [elsewhere(action, model, path, SIZE) * SIZE / 1e6 for _ in range(runs)]
                    size = [SIZE / 1e6] * runs
                    yield Row(name, peaks, size, "MB", action, "the array", 1.3)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(measure(*sys.argv[2:5], int(sys.argv[5])))
    else:
        benchmark(rows, runs=1)()
