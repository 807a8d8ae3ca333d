"""A derivative made on the command line, run without Python: by a C++ host, or by IREE's tools.

    python -m tests.files.other_languages pjrt PLUGIN.so INCLUDE
    python -m tests.files.other_languages iree FOLDER_OF_IREE_TOOLS

Each golden program is differentiated by `pullback derive --vjp --lower`, run, and compared with
the results and gradients that lie beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.files import corpus

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "format-1"
PROGRAMS = ("recurrent", "large_constant")
DERIVE = "from pullback_cli import main; main()"

Run = Callable[[Path, list[np.ndarray]], list[np.ndarray]]


def check(run: Run, folder: Path) -> None:
    """Derives, runs and compares; raises AssertionError when numbers differ."""
    for name in PROGRAMS:
        golden, derived = GOLDEN / f"{name}.mlirbc", folder / f"{name}_vjp.mlirbc"
        command = [
            sys.executable,
            "-c",
            DERIVE,
            "derive",
            golden,
            "--vjp",
            "--lower",
            "-o",
            derived,
        ]
        subprocess.run(command, check=True)
        results = corpus.stored(golden, "result")
        cotangents = [np.ones_like(result) for result in results]
        found = run(derived, [*corpus.stored(golden, "argument"), *cotangents])
        expected = [*results, *corpus.stored(golden, "gradient")]
        corpus.agree(found, [np.ravel(each) for each in expected])
        print(f"{name}: {len(found)} results and gradients agree", flush=True)


def by_pjrt(plugin: str, include: str, folder: Path) -> Run:
    """Builds the C++ host; it prints a line of numbers for each result."""
    host = folder / "pjrt_host"
    source = ROOT / "examples" / "pjrt_host" / "main.cc"
    compiler = os.environ.get("CXX", "c++")
    build = [compiler, "-std=c++17", "-Wall", "-Werror", "-I", include, source, "-ldl", "-o", host]
    subprocess.run(build, check=True)
    _check_that_integers_are_refused([host, plugin], folder / "integers.mlirbc")

    def run(program: Path, arguments: list[np.ndarray]) -> list[np.ndarray]:
        given = [
            f"{'x'.join(map(str, a.shape))}:{','.join(map(str, a.ravel()))}" for a in arguments
        ]
        command = [host, plugin, program, *given]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [np.asarray(line.split(), np.float32) for line in lines.splitlines()]

    return run


def _check_that_integers_are_refused(host: list[str | Path], path: Path) -> None:
    """The host prints float32 arrays; those of integers would be read as if they were."""
    import jax.numpy as jnp

    import pullback as pb

    pb.trace(lambda x: x.astype(jnp.int32))(jnp.float32(1)).save(path)
    printed = subprocess.run([*host, path, ":1.5"], capture_output=True, text=True)
    assert printed.returncode
    assert "a result is no float32 array" in printed.stderr, printed


def check_entries(run: Run, folder: Path) -> None:
    """Run the entries of one file: columns of the Hessian are differences of forces."""
    import jax.numpy as jnp

    import pullback as pb

    def energy(x):
        distances = jnp.sqrt(jnp.sum((x[:, None] - x[None]) ** 2, axis=-1) + 0.1)
        return jnp.sum(jnp.tanh(distances))

    x = np.array([[0.0, 0.1, 0.5], [1.0, 0.2, -0.3], [-0.4, 1.1, 0.2]], np.float32)
    program = pb.trace(energy)(x)
    gradient = program.grad()
    path = folder / "energy.mlirbc"
    pb.save_all(path, energy=program, gradient=gradient, hvp=gradient.jvp())

    def entry(name: str, *arguments: np.ndarray) -> np.ndarray:
        return run(Path(f"{path}@{name}"), [*arguments])[-1]

    corpus.agree(run(path, [x]), [np.ravel(energy(x))])
    step = np.float32(2**-7)
    for direction in np.eye(9, dtype=np.float32).reshape(9, 3, 3):
        after, before = (entry("gradient", x + h * direction) for h in (step, -step))
        np.testing.assert_allclose(
            entry("hvp", x, direction), (after - before) / (2 * step), rtol=1e-2, atol=1e-2
        )
    print("entries of one file: energy, gradient, and the Hessian by differences", flush=True)


def by_iree(tools: str, folder: Path) -> Run:
    """Compiles and runs with IREE's command-line tools."""

    def run(program: Path, arguments: list[np.ndarray]) -> list[np.ndarray]:
        compiled = program.with_suffix(".vmfb")
        target = ["--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"]
        source = ["--iree-input-type=stablehlo", program, "-o", compiled]
        subprocess.run([f"{tools}/iree-compile", *target, *source], check=True)
        outputs = [folder / f"out{i}.npy" for i in range(_results(program))]
        command = [f"{tools}/iree-run-module", f"--module={compiled}", "--function=main"]
        for number, argument in enumerate(arguments):
            np.save(folder / f"in{number}.npy", argument)
            command.append(f"--input=@{folder}/in{number}.npy")
        subprocess.run([*command, *(f"--output=@{path}" for path in outputs)], check=True)
        return [np.ravel(np.load(path)) for path in outputs]

    return run


def _results(program: Path) -> int:
    import pullback as pb

    return len(pb.load(program).out_avals)


def main(kind: str, *places: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = by_pjrt(*places, folder) if kind == "pjrt" else by_iree(*places, folder)
        check(run, folder)
        if kind == "pjrt":
            check_entries(run, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
