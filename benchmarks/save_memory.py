"""Peak memory of saving and of loading a model that is one large array, over the array's size.

    python benchmarks/save_memory.py [--mebibytes 1024]

The array is closed over directly, in a nested `jax.jit`, and in a `custom_vjp` with its rules. Each
step runs in a process of its own, that has saved and loaded a small file before. Saving counts the
model itself. The promise is 1.3.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp

import pullback as pb

COLUMNS = 1 << 8


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


@click.command()
@click.option("--mebibytes", default=1024, show_default=True, help="size of the array")
def main(mebibytes: int) -> None:
    """Peak memory of saving and loading, over the size of the model."""
    size = mebibytes << 20
    print(f"{'array closed over':20} {'save':>6} {'load':>6}")
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.mlirbc")
            ratios = [elsewhere(action, model, path, size) for action in ("save", "load")]
        print(f"{model.replace('_', ' '):20} {ratios[0]:6.2f} {ratios[1]:6.2f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(measure(*sys.argv[2:5], int(sys.argv[5])))
    else:
        main()
