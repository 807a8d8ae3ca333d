"""Read the bytes of a file, and say which file is damaged: without MLIR, and without JAX."""

from __future__ import annotations

import mmap
import os
from typing import Any

from pullback_runtime._errors import ModuleError, PullbackRuntimeError
from pullback_runtime._install import requirement
from pullback_runtime.files import _mmap
from pullback_runtime.files._container import FORMAT_VERSION, SAVE_AGAIN, ArtifactError, Layout

UPGRADE = f"pip install --upgrade {requirement('pullback')} jax"


def read_bytes(source: str | os.PathLike[str] | bytes) -> Any:
    """Return the bytes of the file at a path, mapped into memory if large, or bytes as given."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, mmap.mmap):
        return source
    try:
        return _mmap.read_or_map(source)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ArtifactError(
            f"cannot read {str(source)[:200]!r}: {reason or error}",
            do="check the path; the text of a module is given as bytes",
        ) from error
    except TypeError as error:
        raise ArtifactError(
            f"cannot read a program from {type(source).__name__}",
            do="pass the path of a file, or its bytes",
        ) from error


class naming_file:
    """Run the body so that an ArtifactError names the file, for which MLIR writes `-`."""

    def __init__(self, source: str | os.PathLike[str] | bytes):
        self.name = os.fspath(source) if isinstance(source, str | os.PathLike) else None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if self.name is not None and isinstance(error, ArtifactError):
            raise _of_file(self.name, error) from error.__cause__


def _of_file(name: str, error: ArtifactError) -> ArtifactError:
    where = error.where or name
    if where.startswith("-:"):
        where = f"{name}{where[1:]}"
    elif not where.startswith(name):
        where = f"{name}, {where}"
    return ArtifactError(error.message.replace('"-":', f'"{name}":'), where=where, do=error.do)


class refusing_damage:
    """Run the body with every error in reading a file turned into an ArtifactError.

    A ModuleError, which is about the module in the file, keeps its text.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None or not isinstance(error, Exception):
            return
        if isinstance(error, ModuleError):
            raise ArtifactError(error.message, where=error.where, do=error.do) from error
        if not isinstance(error, PullbackRuntimeError | MemoryError):
            raise ArtifactError(
                f"the file is damaged: {type(error).__name__}: {error}", do=SAVE_AGAIN
            ) from error


def check_format(layout: Layout) -> None:
    """Raise ArtifactError for a file of a newer format than this version of pullback reads."""
    if (layout.format or 0) > FORMAT_VERSION:
        writer = (layout.metadata or {}).get("pullback", "of unknown version")
        raise ArtifactError(
            f"the file has format {layout.format}, and this pullback reads up to {FORMAT_VERSION}",
            where=f"written by pullback {writer}",
            do=UPGRADE,
        )
