"""Load a saved program, or what was compiled from one, on the engine that is to run it."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Collection
from typing import Any

from pullback_runtime.engine import _engines
from pullback_runtime.files import _entries, _executable_file
from pullback_runtime.files._executable_file import ExecutableFile
from pullback_runtime.files._portable import (
    PortableProgram,
    open_compiled,
    open_portable,
    read_whole,
)
from pullback_runtime.files._reading import naming_file, read_bytes, refusing_damage

Source = str | os.PathLike[str] | bytes


class CompiledAgainWarning(UserWarning):
    """Machine code in a file does not fit here, so its program was compiled again."""


def load(
    source: Source,
    *,
    entry: str = _entries.FIRST,
    engine: str | None = None,
    plugin: str | os.PathLike[str] | None = None,
    backend: str | None = None,
    allow_custom_calls: Collection[str] = (),
    trusted: bool = False,
) -> Any:
    """Load a saved program, ready to be called.

    By default JAX runs it, where it is installed: then any StableHLO module can be loaded. The
    other engines take the file as it is, so they run what pullback saved, for one device and of
    fixed shapes, and take and return NumPy arrays.

    Args:
      source: the path of a file, or its bytes: what `pullback` saved; with JAX, StableHLO text or
        bytecode, too.
      entry: which of the programs of the file, by default the first; of another module, the
        function.
      engine: 'jax'; 'pjrt', a plug-in; or 'iree'. `engines()` lists those that are here.
      plugin: the path of the PJRT plug-in; by default the first that is installed.
      backend: 'cpu', 'cuda', 'rocm' or 'tpu'; by default, where the arguments are.
      allow_custom_calls: targets of custom calls that you vouch for, such as one that you have
        registered by `jax.ffi`.
      trusted: parse the file in this process, which is faster; a hostile one can end it. By default
        a helper process parses it first, as SECURITY.md says.

    Returns: a `LoadedProgram` with JAX, otherwise a `PortableProgram`.

    Raises: ArtifactError for everything that is not a whole module, or calls something else, or
    has no such entry; EngineNotFoundError, BackendNotFoundError where an engine, or its device, is
    not here.
    """
    engine = engine or ("pjrt" if plugin is not None else _engines.default_engine())
    if engine != "jax":
        opened = None if engine is None else _engines.open_engine(engine, plugin, backend)
        return open_portable(read_whole(source, entry, trusted), opened)
    _engines.check_engine(engine)
    by_jax = importlib.import_module("pullback_runtime.files._load")
    return by_jax.load(
        source,
        entry=entry,
        backend=backend,
        allow_custom_calls=allow_custom_calls,
        trusted=trusted,
    )


def save_executable(
    source: Source,
    path: str | os.PathLike[str],
    *,
    entry: str = _entries.FIRST,
    engine: str | None = None,
    plugin: str | os.PathLike[str] | None = None,
    backend: str | None = None,
) -> None:
    """Compile a saved program, and keep the machine code in a file, for `load_executable`.

    The code runs with the same version of the engine, on the same kind of device and processor.
    The file holds the program as well.

    Args:
      source: the path of a file that pullback saved, or its bytes.
      path: the file to write.
      entry: which of the programs of the file, by default the first.
      engine: 'jax', the default where it is installed, or 'pjrt'.
      plugin: the path of the PJRT plug-in; by default the first that is installed.
      backend: 'cpu', 'cuda', 'rocm' or 'tpu'; by default that of the engine's first device.

    Raises: ArtifactError for what is no such file; CompileError where it cannot be compiled.
    """
    whole = read_whole(source, entry)
    opened = _engines.open_engine(_named(engine, plugin), plugin, backend)
    code = opened.compile(whole.program_for(opened.platform)).serialize()
    ExecutableFile(opened.identity(), whole.entry, whole.content, code).write(path)


def load_executable(
    source: Source, *, plugin: str | os.PathLike[str] | None = None
) -> PortableProgram:
    """Load machine code that `save_executable` or `pullback compile` wrote, ready to be called.

    It runs what is in the file: load only what you, or somebody you trust, compiled. Code for
    another version of the engine, another device or processor is not run: the program in the file
    is compiled again, with a `CompiledAgainWarning`.

    Args:
      source: the path of the file, or its bytes.
      plugin: the path of the PJRT plug-in, for what a plug-in compiled.

    Raises: ArtifactError for a damaged file, or any other; EngineNotFoundError,
    BackendNotFoundError where the engine that compiled it, or its device, is not here.
    """
    with naming_file(source), refusing_damage():
        file = _executable_file.read(read_bytes(source))
        whole = read_whole(file.program, file.entry, trusted=True)
    identity = file.identity
    engine = _engines.open_engine(identity["engine"], plugin, None)
    unfit = file.difference(engine.identity())
    if unfit is None:
        return open_compiled(whole, engine.deserialize(file.code))
    warnings.warn(
        f"the machine code in the file does not fit, so its program is compiled again: {unfit}",
        CompiledAgainWarning,
        stacklevel=2,
    )
    return open_portable(whole, engine)


def _named(engine: str | None, plugin: object) -> str:
    """Return the engine to use, which a plug-in names as well."""
    found = engine or ("pjrt" if plugin is not None else _engines.default_engine())
    if found is None:
        raise _engines.no_engine()
    return found
