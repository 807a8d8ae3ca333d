"""The runtime in an environment without JAX: it shows files, runs them, and says what is missing.

    python -m tests.files.runtime_alone PYTHON [PLUGIN OTHER_PLUGIN]

PYTHON is that of an environment with `./runtime` alone, or with its extras as well; the plug-ins
are two builds of XLA for CPUs. The files are written here, by the compiler.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from tests.files import corpus

CHECKS = Path(__file__).with_name("without_jax.py")


def of_types(half, double, integers, flags, number, nothing):
    """Each type of whole bytes that programs have; of booleans, too, and without elements."""
    return {
        "half": half * 2,
        "double": double / 3,
        "integers": integers + 1,
        "flags": ~flags,
        "number": number * 1j,
        "nothing": nothing,
    }


TYPED = (
    np.ones(3, jnp.bfloat16),
    np.linspace(0, 1, 4),
    np.arange(6, dtype=np.int8).reshape(2, 3),
    np.array([True, False]),
    np.complex64(1 + 2j),
    np.zeros((0, 2), np.float32),
)


def of_nans(x):
    """Ops that compilers may take shortcuts in, where a NaN is among their operands."""
    return jnp.max(x), jnp.min(x), jnp.maximum(x, 1), jnp.clip(x, 0, 2), jnp.sort(x), x - x, x * 0


NANS = np.array([np.nan, np.inf, -np.inf, -0.0, 2.5], np.float32)


def write(folder: Path) -> None:
    """Write the golden programs, the gradient of one, and a program of many types."""
    corpus.write(folder)
    path = folder / "recurrent.mlirbc"
    gradient, arguments = corpus.gradient_of(path)
    gradient.save(folder / "gradient.mlirbc")
    program = pb.load(path)
    pb.save_all(folder / "entries.mlirbc", energy=program, forces=program.vjp())
    results = [*corpus.stored(path, "result"), *corpus.stored(path, "gradient")]
    named = {f"argument{i}": each for i, each in enumerate(arguments)}
    named |= {f"result{i}": each for i, each in enumerate(results)}
    np.savez(folder / "gradient.npz", **named)
    with jax.enable_x64(True):
        pb.trace(of_types)(*TYPED).save(folder / "types.mlirbc")
    nans = pb.trace(of_nans)(NANS)
    nans.save(folder / "nans.mlirbc")
    named = {f"result{i}": np.asarray(each) for i, each in enumerate(nans(NANS))}
    np.savez(folder / "nans.npz", argument0=NANS, **named)
    (folder / "text.mlir").write_text("module {}")


def main(python: str, *plugins: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        subprocess.run([python, "-I", CHECKS, name, *plugins], check=True, cwd=name)


if __name__ == "__main__":
    main(*sys.argv[1:])
