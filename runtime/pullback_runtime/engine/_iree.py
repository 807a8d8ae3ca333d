"""Run programs through IREE, compiled for the processor that is here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Any

import iree.compiler
import iree.runtime
import numpy as np

from pullback_runtime._errors import BackendNotFoundError, CompileError, PullbackRuntimeError
from pullback_runtime.engine._host import host_features

TARGET = "llvm-cpu"
OPTIONS = "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"
DRIVER = "local-task"


class IreeEngine:
    """The processor, as IREE compiles for it."""

    platform = "cpu"

    def identity(self) -> dict[str, str]:
        """Return the versions and the device that must be equal where machine code is to run."""
        return {
            "engine": "iree",
            "platform": self.platform,
            "IREE": metadata.version("iree-base-runtime"),
            "processor": host_features(),
        }

    def compile(self, program: bytes) -> IreeProgram:
        """Compile a StableHLO portable artifact; raise CompileError where that fails."""
        try:
            code = iree.compiler.compile_str(
                program,
                input_type="stablehlo",
                target_backends=[TARGET],
                extra_args=[*OPTIONS],
            )
        except iree.compiler.CompilerToolError as error:
            raise CompileError(
                f"IREE does not compile the program: {_first_error(str(error))}",
                do="take another engine: IREE has no LAPACK, and lacks some ops",
            ) from error
        return self.deserialize(code)

    def deserialize(self, code: bytes) -> IreeProgram:
        """Load machine code that an engine of the same identity has made."""
        config = iree.runtime.Config(DRIVER)
        module = iree.runtime.VmModule.copy_buffer(config.vm_instance, code)
        return IreeProgram(code, iree.runtime.load_vm_module(module, config))


class IreeProgram:
    """A compiled program on the processor."""

    def __init__(self, code: bytes, module: Any) -> None:
        self._code = code
        self._module = module

    def serialize(self) -> bytes:
        """Return the machine code, in IREE's form."""
        return self._code

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it; return its results."""
        try:
            results = self._module.main(*arrays)
        except (RuntimeError, ValueError) as error:
            raise PullbackRuntimeError(f"the program failed in IREE: {error}") from error
        listed = results if isinstance(results, tuple | list) else [results]
        return [np.asarray(result) for result in listed]


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "error:" in line]
    return lines[0].partition("error:")[2].strip() if lines else text[:500]


def open_engine(plugin: Any, backend: str | None) -> IreeEngine:
    """Return the engine; it runs on the processor only."""
    if plugin is not None:
        raise BackendNotFoundError(
            "IREE takes no PJRT plug-in",
            where=f"plugin={str(plugin)!r}",
            do='leave out plugin=, or give engine="pjrt"',
        )
    if backend not in (None, "cpu"):
        raise BackendNotFoundError(
            f"no backend {backend!r}; through IREE programs run on 'cpu'",
            do='leave out backend=, or give another engine, such as "jax"',
        )
    return IreeEngine()
