"""Compile a file as it is with XLA in jaxlib, for machine code that is kept in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pullback_runtime import _jax
from pullback_runtime._errors import BackendNotFoundError, CompileError, PullbackRuntimeError
from pullback_runtime.call import _backend
from pullback_runtime.engine._host import host_features


@dataclass(frozen=True, eq=False)
class JaxEngine:
    """Compile for one device of JAX's, and run there."""

    device: jax.Device

    @property
    def platform(self) -> str:
        """The platform: 'cpu', 'cuda', 'rocm' or 'tpu'."""
        return _backend.platform_name(self.device)

    def identity(self) -> dict[str, str]:
        """Return the versions and the device that must be equal where machine code is to run."""
        on_cpu = {"processor": host_features()} if self.platform == "cpu" else {}
        return {
            "engine": "jax",
            "platform": self.platform,
            "device": self.device.device_kind,
            "jaxlib": _jax.jaxlib_version,
            "driver": self.device.client.platform_version,
            **on_cpu,
        }

    def compile(self, program: bytes) -> JaxProgram:
        """Compile a StableHLO portable artifact; raise CompileError where that fails."""
        try:
            return JaxProgram(self.device, _jax.compile_for(self.device, program))
        except _jax.XlaRuntimeError as error:
            raise CompileError(
                f"XLA does not compile the program: {error}",
                where="in pullback_runtime",
                do="look for an op that this backend lacks",
            ) from error

    def deserialize(self, code: bytes) -> JaxProgram:
        """Load machine code that an engine of the same identity has made."""
        try:
            return JaxProgram(self.device, _jax.load_code(self.device, code))
        except _jax.XlaRuntimeError as error:
            raise CompileError(f"XLA does not load the machine code: {error}") from error


@dataclass(frozen=True, eq=False)
class JaxProgram:
    """A compiled program on one device of JAX's."""

    device: jax.Device
    executable: Any

    def serialize(self) -> bytes:
        """Return the machine code, in PJRT's form."""
        return bytes(self.executable.serialize())

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it; return its results."""
        try:
            return _jax.execute(self.executable, arrays, self.device)
        except _jax.XlaRuntimeError as error:
            raise PullbackRuntimeError(f"the program failed: {error}") from error


def open_engine(plugin: Any, backend: str | None) -> JaxEngine:
    """Return the engine of a backend's first device, by default of JAX's first device."""
    if plugin is not None:
        raise BackendNotFoundError(
            "JAX finds its own plug-ins",
            where=f"plugin={str(plugin)!r}",
            do='leave out plugin=, or give engine="pjrt"',
        )
    return JaxEngine(_backend.devices(backend)[0])
