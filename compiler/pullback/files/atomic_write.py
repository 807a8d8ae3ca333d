"""Replace a file in one step: a kill at any moment leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pullback.files.errors import ArtifactError

SHOWN_OF_NAME = 40


def write_atomically(path: str | os.PathLike[str], content: bytes | Sequence[Any]) -> None:
    """Write to a new file in the same folder, flush it to the disk, and rename it.

    The content is bytes, or a sequence of buffers. A link stays a link, to the new file. A pipe or
    a device is written to directly, as renaming a file over it would replace it.

    Raises: ArtifactError when the folder cannot be written; the old file is then untouched.
    """
    target = os.fsdecode(path)
    pieces = [content] if isinstance(content, bytes) else content
    try:
        if _is_special(target):
            _write_through(target, pieces)
        else:
            _replace(Path(os.path.realpath(target)), pieces)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ArtifactError(
            f"cannot write {target!r}: {reason or error}",
            do="check that the folder is there, can be written, and has room",
        ) from error


def _is_special(path: str) -> bool:
    """Return True if the path exists and is not a regular file: a pipe, a device or a folder."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _write_through(path: str, pieces: Sequence[Any]) -> None:
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)


def _replace(target: Path, pieces: Sequence[Any]) -> None:
    mode = _mode(target)
    handle, temporary = _new_file(target, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def _new_file(target: Path, mode: int) -> tuple[int, str]:
    """Open a new file beside the target, with the mode reduced by the umask.

    The system applies the umask: to read it, we would have to change it for a moment, which other
    threads would see.
    """
    # A name may be as long as a file system takes: this one has room for what is random.
    name = f".{target.name[:SHOWN_OF_NAME]}.{secrets.token_hex(8)}"
    temporary = os.path.join(target.parent, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.open(temporary, flags, mode), temporary


def _mode(target: Path) -> int | None:
    """Return the mode of the file to be replaced, or None if there is none."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that the new name survives a power cut, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
