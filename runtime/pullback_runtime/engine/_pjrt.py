"""Run programs through a PJRT plug-in, a shared library that is named by its path, over pypjrt."""

from __future__ import annotations

import functools
import hashlib
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pypjrt

from pullback_runtime._errors import BackendNotFoundError, CompileError, PullbackRuntimeError
from pullback_runtime.engine._engines import INSTALL_CPU, installed_plugins
from pullback_runtime.engine._host import host_features
from pullback_runtime.files._container import read_layout
from pullback_runtime.files._signature import read_type

ENDS = 1 << 16
INSTALL = (
    f"name a plug-in by plugin=PATH, or install one: for CPUs, {INSTALL_CPU}; for NVIDIA GPUs, "
    "jax-cuda13-pjrt; for TPUs, libtpu"
)

_TYPES = {
    "bool": "PRED",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    **{f"int{bits}": f"S{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    "complex64": "C64",
    "complex128": "C128",
}
"""The names that PJRT has for dtypes of NumPy, of whole bytes."""


AS_JAX = {"cpu": ("xla_cpu_enable_fast_min_max",)}
"""Options of XLA that are off in JAX. With this one, `max` of a NaN may be a number."""


@dataclass
class OptionsOfJax(pypjrt.CompileOptions):  # type: ignore[misc]
    """Compile options with which XLA gives the numbers that it gives in JAX."""

    switched_off: tuple[str, ...] = ()

    def encode(self, abi: Any) -> bytes:
        """Serialize to a `CompileOptionsProto`, whose options by name are a map."""
        number = abi.PROTO_FIELDS["CompileOptionsProto"]["env_option_overrides"]
        off = _field(2, 0, b"\0")  # a bool that is false
        entries = (_field(1, 2, name.encode()) + _field(2, 2, off) for name in self.switched_off)
        return bytes(super().encode(abi)) + b"".join(_field(number, 2, each) for each in entries)


def _field(number: int, wire: int, content: bytes) -> bytes:
    """Encode one field of a protocol buffer, with its length where it has one; all are short."""
    length = bytes([len(content)]) if wire == 2 else b""
    return bytes([number << 3 | wire]) + length + content


@dataclass(frozen=True, eq=False)
class PjrtEngine:
    """The first device of a plug-in."""

    plugin: Any
    client: Any

    @functools.cached_property
    def platform(self) -> str:
        """The platform: 'cpu', 'cuda', 'rocm' or 'tpu'."""
        return str(self.client.platform_name)

    @functools.cached_property
    def codes(self) -> dict[str, int]:
        """The number of each dtype in PJRT's C API."""
        abi = self.plugin.abi
        return {name: getattr(abi, f"PJRT_Buffer_Type_{each}") for name, each in _TYPES.items()}

    @functools.cached_property
    def names(self) -> dict[int, str]:
        """The dtype for each number in PJRT's C API."""
        return {code: name for name, code in self.codes.items()}

    def identity(self) -> dict[str, str]:
        """Return the versions and the device that must be equal where machine code is to run."""
        with self.client.device(0) as device:
            kind = str(device.kind)
        on_cpu = {"processor": host_features()} if self.platform == "cpu" else {}
        return {
            "engine": "pjrt",
            "platform": self.platform,
            "device": kind,
            "PJRT": ".".join(map(str, self.plugin.api_version)),
            "plug-in": _fingerprint(self.plugin.path),
            **on_cpu,
        }

    def compile(self, program: bytes) -> PjrtProgram:
        """Compile a StableHLO portable artifact; raise CompileError where that fails."""
        self._check_version(program)
        options = OptionsOfJax(switched_off=AS_JAX.get(self.platform, ()))
        try:
            return PjrtProgram(self, self.client.compile(program, options=options))
        except pypjrt.errors.PjrtError as error:
            raise CompileError(
                f"the PJRT plug-in does not compile the program: {error}",
                where=str(self.plugin.path),
                do="a program that calls a library, such as LAPACK, needs an engine that has it: "
                'engine="jax"',
            ) from error

    def _check_version(self, program: bytes) -> None:
        written = read_layout(program).stablehlo_version
        newest = self.plugin.attributes.get("stablehlo_current_version")
        if written is None or newest is None:
            return
        if tuple(map(int, written.split("."))) > tuple(newest):
            readable = ".".join(map(str, newest))
            raise CompileError(
                f"the file needs StableHLO {written}, and this plug-in reads up to {readable}",
                where=str(self.plugin.path),
                do=f"take a newer plug-in, or save the program with target={readable!r}",
            )

    def deserialize(self, code: bytes) -> PjrtProgram:
        """Load machine code that an engine of the same identity has made."""
        try:
            return PjrtProgram(self, self.client.deserialize_executable(code))
        except pypjrt.errors.PjrtError as error:
            raise CompileError(
                f"the PJRT plug-in does not load the machine code: {error}",
                where=str(self.plugin.path),
            ) from error


class PjrtProgram:
    """A compiled program on the first device."""

    def __init__(self, engine: PjrtEngine, executable: Any) -> None:
        self._engine = engine
        self._executable = executable
        weakref.finalize(self, executable.close)  # at exit before the client's, which is older

    def serialize(self) -> bytes:
        """Return the machine code, in PJRT's form."""
        try:
            return bytes(self._executable.serialize())
        except pypjrt.errors.PjrtError as error:
            raise CompileError(
                f"this PJRT plug-in cannot write its machine code: {error}",
                where=str(self._engine.plugin.path),
            ) from error

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it; return its results."""
        buffers: list[Any] = []
        try:
            with self._engine.client.device(0) as device:
                buffers += (self._put(array, device) for array in arrays)
                results = self._executable(*buffers)
                buffers += results
            return [self._take(result) for result in results]
        except pypjrt.errors.PjrtError as error:
            raise PullbackRuntimeError(
                f"the program failed on the PJRT plug-in: {error}",
                where=str(self._engine.plugin.path),
            ) from error
        finally:
            for buffer in buffers:
                buffer.close()

    def _put(self, array: np.ndarray, device: Any) -> Any:
        data = array.reshape(-1).view(np.uint8)
        if not data.size:  # pypjrt takes the address of the first byte, as one to write to
            data = np.zeros(1, np.uint8)
        elif not data.flags.writeable:
            data = data.copy()
        code = self._engine.codes[_supported(array.dtype)]
        return self._engine.client.buffer_from_host(data, code, array.shape, device)

    def _take(self, buffer: Any) -> np.ndarray:
        shape = ",".join(map(str, buffer.dimensions))
        kind = read_type(f"{_supported_code(self._engine.names, buffer.element_type)}[{shape}]")
        result = np.empty(kind.shape, kind.dtype)
        if result.size:
            buffer.to_host(result.reshape(-1).view(np.uint8))
        return result


def _supported(dtype: np.dtype) -> str:
    if dtype.name not in _TYPES:
        raise PullbackRuntimeError(
            f"arrays of {dtype.name} cannot be handed to a PJRT plug-in",
            do='convert them inside of the program, or load it with engine="jax"',
        )
    return dtype.name


def _supported_code(names: dict[int, str], code: int) -> str:
    if code not in names:
        raise PullbackRuntimeError(
            f"the program returns arrays of PJRT's type {code}, for which NumPy has none",
            do='convert them inside of the program, or load it with engine="jax"',
        )
    return names[code]


def open_engine(plugin: str | os.PathLike[str] | None, backend: str | None) -> PjrtEngine:
    """Load a plug-in; each is loaded once in a process.

    Without a name it is `$PYPJRT_PLUGIN`, else the first that is installed, else one that pypjrt
    finds.

    Raises: BackendNotFoundError where there is none, or none for this backend.
    """
    named = plugin or os.environ.get("PYPJRT_PLUGIN")
    installed = None if named else next(installed_plugins(backend), None)
    try:
        path = Path(named or (installed.path if installed else pypjrt.find_plugin())).expanduser()
    except FileNotFoundError as error:
        raise BackendNotFoundError(
            f"no PJRT plug-in{f' for {backend}' if backend else ''} was named or is installed",
            do=INSTALL,
        ) from error
    if not path.is_file():
        raise BackendNotFoundError(f"there is no PJRT plug-in at {path}", do=INSTALL)
    engine = _opened(path.resolve())
    if backend not in (None, engine.platform):
        raise BackendNotFoundError(
            f"no backend {backend!r}; the PJRT plug-in is for {engine.platform!r}",
            where=str(path),
            do="leave out backend=, or name another plug-in",
        )
    return engine


@functools.cache
def _opened(path: Path) -> PjrtEngine:
    try:
        plugin = pypjrt.Plugin(path)
        client = pypjrt.Client.create(plugin)
    except (OSError, AttributeError) as error:
        raise BackendNotFoundError(
            f"this file is no PJRT plug-in: {error}", where=str(path), do=INSTALL
        ) from error
    except pypjrt.errors.PjrtError as error:
        raise BackendNotFoundError(
            f"the PJRT plug-in does not start: {error}", where=str(path), do=INSTALL
        ) from error
    engine = PjrtEngine(plugin, client)
    weakref.finalize(engine, client.close)
    return engine


def _fingerprint(path: Path) -> str:
    """Return the size of a library and a digest of its ends, which tell builds apart."""
    with path.open("rb") as file:
        ends = file.read(ENDS)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - ENDS, 0))
        ends += file.read(ENDS)
    return f"{size} bytes, {hashlib.sha256(ends).hexdigest()[:16]}"
