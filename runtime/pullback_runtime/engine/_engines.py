"""Open the engine that is to run a program from a file, without JAX's tracing."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from pullback_runtime._errors import EngineNotFoundError
from pullback_runtime._install import requirement


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


DISTRIBUTIONS = {"jax": "jax", "iree": "iree-base-runtime"}
"""The distribution whose version is that of an engine; a PJRT plug-in is one of its own."""

PLUGINS = {
    "jax-cuda13-pjrt": "cuda",
    "jax-cuda12-pjrt": "cuda",
    "jax-rocm7-pjrt": "rocm",
    "libtpu": "tpu",
    "lammps-jax-pjrt-cpu": "cpu",
    "fastatomstruct-xla-cpu": "cpu",
    "cyxla-pjrt-cpu": "cpu",
}
"""The platform of each distribution that has a PJRT plug-in, the one to prefer first."""

INSTALL_CPU = "pip install --no-deps lammps-jax-pjrt-cpu (Linux)"
"""How to get a plug-in for CPUs, whose wheel asks for JAX without need."""

_LIBRARY = re.compile(
    r"((lib)?pjrt_cpu|pjrt_c_api_cpu_plugin|xla_(cuda|rocm)_plugin|libtpu)\.(so|dylib|dll)"
)


class InstalledEngine(NamedTuple):
    """An engine that is here.

    Attributes:
      engine: what `load` takes as `engine=`: `"jax"`, `"pjrt"` or `"iree"`.
      distribution: what was installed, such as `lammps-jax-pjrt-cpu`.
      version: that of the distribution.
      path: the folder of the package; of a PJRT plug-in the library, which `plugin=` takes.
    """

    engine: str
    distribution: str
    version: str
    path: Path


def engines() -> list[InstalledEngine]:
    """Return the engines that are installed here, one for each PJRT plug-in; imports none of them.

    Plug-ins are found in the distributions that `docs/without_jax.md` names; `load` takes others
    by their path.
    """
    found: list[InstalledEngine] = []
    for engine in filter(is_installed, MODULES):
        if engine == "pjrt":
            found += installed_plugins()
            continue
        name, spec = DISTRIBUTIONS[engine], importlib.util.find_spec(NEEDED[engine])
        place = Path(spec.origin).parent if spec is not None and spec.origin else Path()
        distribution = _distribution(name)
        version = distribution.version if distribution else "unknown"
        found.append(InstalledEngine(engine, name, version, place))
    return found


def _distribution(name: str) -> importlib.metadata.Distribution | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.distribution(name)
    return None


def installed_plugins(platform: str | None = None) -> Iterator[InstalledEngine]:
    """Yield the PJRT plug-ins that are installed, of a platform or of all, in order."""
    for name, its_platform in PLUGINS.items():
        distribution = _distribution(name) if platform in (None, its_platform) else None
        if distribution is None:
            continue
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if _LIBRARY.fullmatch(file.name) and path.is_file():
                yield InstalledEngine("pjrt", name, distribution.version, path)


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
            do=f"pip install {requirement('pullback-runtime', engine)}",
        )


def no_engine() -> EngineNotFoundError:
    """Return the error for a call of a program for which nothing is there to run it."""
    return EngineNotFoundError(
        "nothing here runs a program: JAX is not installed, and no engine was named",
        do=f"pip install {requirement('pullback-runtime', 'jax')}; or "
        f"pip install {requirement('pullback-runtime', 'pjrt')} and a "
        f'plug-in, {INSTALL_CPU}, and load the file with engine="pjrt"',
    )


def open_engine(engine: str, plugin: str | os.PathLike[str] | None, backend: str | None) -> Engine:
    """Return an engine, ready to compile.

    Raises: EngineNotFoundError, or BackendNotFoundError where its plug-in or device is not here.
    """
    check_engine(engine)
    module: Any = importlib.import_module(f"pullback_runtime.engine.{MODULES[engine]}")
    opened: Engine = module.open_engine(plugin, backend)
    return opened
