"""Three engines run the same files to the same numbers: XLA, StableHLO's interpreter, IREE.

    python -m tests.files.engines [PYTHON_WITH_IREE]

IREE comes from PyPI (`iree-base-compiler`, `iree-base-runtime`) and may live in an environment
of its own; without the argument, the present interpreter must have it. Each golden program is
run as it is, and its reverse-mode derivative as well.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import pullback as pb
import pullback_runtime
from tests.files import corpus

NEEDS_LAPACK = ("solver",)

RUN_WITH_IREE = """
import sys
import numpy as np
import iree.compiler
import iree.runtime

model, arrays, results = sys.argv[1:]
compiled = iree.compiler.compile_file(
    model, input_type="stablehlo", target_backends=["llvm-cpu"],
    extra_args=["--iree-llvmcpu-target-cpu=host"],
)
config = iree.runtime.Config("local-task")
module = iree.runtime.load_vm_module(
    iree.runtime.VmModule.copy_buffer(config.vm_instance, compiled), config
)
with np.load(arrays) as given:
    outputs = module.main(*[given[f"arr_{i}"] for i in range(len(given.files))])
outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
np.savez(results, *[np.asarray(output) for output in outputs])
"""


def main(python: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus.write(folder)
        for path in sorted(folder.glob("*.mlirbc")):
            if path.stem in NEEDS_LAPACK:
                print(f"{path.stem}: only XLA has LAPACK; not compared")
                continue
            compare(path, corpus.stored(path, "argument"), python)
            derived, arguments = corpus.gradient_of(path)
            gradient = path.with_name(f"{path.stem}_gradient.mlirbc")
            derived.save(gradient)
            compare(gradient, arguments, python)
    print("three engines, the same numbers")


def compare(path: Path, arguments: list[np.ndarray], python: str) -> None:
    """Runs one file in three engines; raises AssertionError when their numbers differ."""
    by_xla = pullback_runtime.load(path).flat(*arguments)
    program = pb.load(path)
    operands = [*program.constants, *arguments]
    by_interpreter = pullback_runtime.run_interpreted(program.module, *operands)
    corpus.agree(by_interpreter, by_xla)
    corpus.agree(run_with_iree(path, arguments, python), by_xla)
    print(f"{path.stem}: XLA, the interpreter and IREE agree on {len(by_xla)} results", flush=True)


def run_with_iree(path: Path, arguments: list[np.ndarray], python: str) -> list[np.ndarray]:
    """The results that IREE computes from the very bytes of the file."""
    given, results = path.with_suffix(".given.npz"), path.with_suffix(".iree.npz")
    np.savez(given, *arguments)
    command = [python, "-c", RUN_WITH_IREE, str(path), str(given), str(results)]
    subprocess.run(command, check=True)
    with np.load(results) as arrays:
        return [arrays[name] for name in arrays]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.executable)
