"""From the start of a process to the first force of a small network, next to `import jax` alone.

    python benchmarks/first_force.py [--repeats 7] [--python PYTHON] [--plugin PLUGIN.so]

PYTHON is that of an environment with `./runtime[pjrt]` and without JAX, and PLUGIN an XLA for CPUs;
by default those that `make runtime-alone` has made. The aim is at most half of the time that a
process with `import jax, jax.export` takes. Each process is a fresh one, all in turn.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

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


def seconds(*command: str | Path) -> float:
    """The time that a process takes, from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print medians and ratios; exit with 1 above the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--python", default=ALONE / "bin" / "python")
    parser.add_argument("--plugin", default=next(ALONE.rglob("*pjrt*.so"), None))
    options = parser.parse_args()
    if options.plugin is None:
        print("skipped: `make runtime-alone` makes an environment without JAX, with a plug-in")
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        seconds(options.python, "-I", "-c", COMPILE, name, options.plugin)
        run = [options.python, "-I", "-c", RUN, name, options.plugin]
        commands = {
            "import jax, jax.export": [sys.executable, "-c", "import jax, jax.export"],
            "load and compile": [*run, "load"],
            "machine code": [*run, "load_executable"],
        }
        rounds = [[seconds(*c) for c in commands.values()] for _ in range(options.repeats + 1)]
    medians = [statistics.median(times) for times in zip(*rounds[1:], strict=True)]
    for label, median in zip(commands, medians, strict=True):
        print(f"{label:24}{median * 1e3:7.0f} ms{median / medians[0]:8.2f}")
    print(f"aim: at most {LIMIT}")
    sys.exit(max(medians[1:]) > LIMIT * medians[0])


if __name__ == "__main__":
    main()
