"""Open the engine that is to run a program from a file, without JAX's tracing."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pullback_runtime._errors import EngineNotFoundError


class Compiled(Protocol):
    """A program that an engine has compiled."""

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it on contiguous arrays of the types that it takes; return its results."""

    def serialize(self) -> bytes:
        """Return the machine code, in PJRT's form."""


class Engine(Protocol):
    """Compile StableHLO and run it on one device."""

    @property
    def platform(self) -> str:
        """The platform: 'cpu', 'cuda', 'rocm' or 'tpu'."""

    def identity(self) -> dict[str, str]:
        """Return the versions and the device that must be equal where machine code is to run."""

    def compile(self, program: bytes) -> Compiled:
        """Compile a StableHLO portable artifact; raise CompileError where that fails."""

    def deserialize(self, code: bytes) -> Compiled:
        """Load machine code that an engine of the same identity has made."""


MODULES = {"jax": "_jax_engine", "pjrt": "_pjrt", "iree": "_iree"}
"""Names the module of each engine; imported on demand, since it imports what it runs on."""

NEEDED = {"jax": "jax", "pjrt": "pypjrt", "iree": "iree.runtime"}
"""The package that each engine needs, which is an extra of this distribution."""


def is_installed(engine: str) -> bool:
    """Return True if the package that an engine needs can be imported."""
    try:
        return importlib.util.find_spec(NEEDED[engine]) is not None
    except (ImportError, ValueError):  # no parent package; or its place in `sys.modules` is taken
        return False


def default_engine() -> str | None:
    """Return 'jax' where JAX is installed; None where the caller has to choose."""
    return "jax" if is_installed("jax") else None


def check_engine(engine: str) -> None:
    """Raise EngineNotFoundError for an engine that is unknown, or whose package is missing."""
    if engine not in MODULES:
        raise EngineNotFoundError(
            f"no engine {engine!r}", do=f"choose one of {', '.join(map(repr, MODULES))}"
        )
    if not is_installed(engine):
        raise EngineNotFoundError(
            f"engine {engine!r} needs the package {NEEDED[engine]}, which is not installed",
            do=f'pip install "pullback-runtime[{engine}]"',
        )


def no_engine() -> EngineNotFoundError:
    """Return the error for a call of a program for which nothing is there to run it."""
    return EngineNotFoundError(
        "nothing here runs a program: JAX is not installed, and no engine was named",
        do='pip install "pullback-runtime[jax]"; or pip install "pullback-runtime[pjrt]" and load '
        'the file with engine="pjrt", plugin="path/to/the/plug-in.so"',
    )


def open_engine(engine: str, plugin: str | os.PathLike[str] | None, backend: str | None) -> Engine:
    """Return an engine, ready to compile.

    Raises: EngineNotFoundError, or BackendNotFoundError where its plug-in or device is not here.
    """
    check_engine(engine)
    module: Any = importlib.import_module(f"pullback_runtime.{MODULES[engine]}")
    opened: Engine = module.open_engine(plugin, backend)
    return opened
