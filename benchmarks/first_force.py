"""Time from the start of a process to the first force of a small network, without JAX.

    python benchmarks/first_force.py [--runs 7]

It stands beside a process that does nothing but `import jax, jax.export`. The environment without
JAX, and its plug-in, are those that `make runtime-alone` has made.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from rows import Row, Wanted, benchmark

import pullback as pb

LIMIT = 0.5
ALONE = Path(__file__).parents[1] / ".venv-alone"
LAYERS = 3, 64, 64, 1
ATOMS = 32

RUN = """
import sys
import numpy as np
import pullback_runtime

folder, plugin, load = sys.argv[1:]
name = folder + ("/forces.mlirbc" if load == "load" else "/forces.exe")
forces = getattr(pullback_runtime, load)(name, plugin=plugin)(np.load(folder + "/positions.npy"))
assert np.isfinite(forces).all() and "jax" not in sys.modules
"""
COMPILE = """
import sys
import pullback_runtime

folder, plugin = sys.argv[1:]
pullback_runtime.save_executable(folder + "/forces.mlirbc", folder + "/forces.exe", plugin=plugin)
"""


def write(folder: Path) -> None:
    """Write the forces of a small network, and positions."""
    random = np.random.default_rng(0)
    sizes = list(zip(LAYERS, LAYERS[1:], strict=False))
    weights = [random.normal(size=size).astype(np.float32) / size[0] ** 0.5 for size in sizes]

    def energy(positions):
        *hidden, last = weights
        for weight in hidden:
            positions = jnp.tanh(positions @ weight)
        return -jnp.sum(positions @ last)

    positions = random.normal(size=(ATOMS, LAYERS[0])).astype(np.float32)
    np.save(folder / "positions.npy", positions)
    pb.trace(energy)(positions).grad().save(folder / "forces.mlirbc")


def milliseconds(*command: str | Path) -> float:
    """The time that a process takes, from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return 1e3 * (time.perf_counter() - start)


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    python, plugin = ALONE / "bin" / "python", next(ALONE.rglob("*pjrt*.so"), None)
    ways = {"load and compile": "load", "machine code": "load_executable"}
    ways = {name: way for name, way in ways.items() if wanted(name)}
    if not ways:
        return
    if plugin is None:
        print("left out: `make runtime-alone` makes an environment without JAX", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        milliseconds(python, "-I", "-c", COMPILE, folder, plugin)
        for name, way in ways.items():
            pairs = [
                (
                    milliseconds(python, "-I", "-c", RUN, folder, plugin, way),
                    milliseconds(sys.executable, "-c", "import jax, jax.export"),
                )
                for _ in range(runs + 1)
            ]
            ours, theirs = zip(*pairs[1:], strict=True)
            yield Row(name, ours, theirs, peer="import jax, jax.export", aim=LIMIT)


if __name__ == "__main__":
    benchmark(rows, runs=7)()
