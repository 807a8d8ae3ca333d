"""Replace a file in one step: a kill at any moment leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pullback.artifact.errors import ArtifactError


def write_atomically(path: str | os.PathLike[str], content: bytes | Sequence[Any]) -> None:
    """Writes to a new file in the same folder, flushes it to the disk, and renames it.

    The content is bytes, or a row of buffers.

    Raises: ArtifactError when the folder cannot be written; the old file is then untouched.
    """
    target = Path(path)
    try:
        _write(target, [content] if isinstance(content, bytes) else content)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {str(path)!r}: {error.strerror or error}",
            do="check that the folder is there, can be written, and has room",
        ) from error


def _write(target: Path, pieces: Sequence[Any]) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def _mode(target: Path) -> int:
    """The mode of the file that is replaced, or what `open` would give a new one."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Makes the new name survive a power cut, where the system can sync folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
