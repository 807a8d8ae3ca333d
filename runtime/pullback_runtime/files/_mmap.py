"""Read large files without holding them: mapped into memory, and let go page by page."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

MAPPED_FROM = 32 << 20
CHUNK = 8 << 20
BUFFER = 1 << 16
ALIGNMENT = 64  # what XLA asks of memory that it takes over as it is


def read_or_map(path: str | os.PathLike[str]) -> Any:
    """Read a small file; map a large one into memory."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        size = os.fstat(file).st_size
        if size >= MAPPED_FROM:
            return mmap.mmap(file, 0, access=mmap.ACCESS_READ)
        content = os.read(file, size)
        if size and len(content) == size:
            return content
        while more := os.read(file, BUFFER):  # the size of a pipe, say, is unknown
            content += more
        return content
    finally:
        os.close(file)


def chunks(content: Any, start: int = 0, end: int | None = None) -> Iterator[memoryview]:
    """Yield the content in chunks; pages of a mapped file are released after each."""
    view = memoryview(content)[start : len(content) if end is None else end]
    for position in range(0, len(view), CHUNK):
        yield view[position : position + CHUNK]
        let_go(content, start + position, CHUNK)


def let_go(content: Any, start: int, length: int) -> None:
    """Release the pages of a mapped file in this range; they are read again when needed."""
    if isinstance(content, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = min(start + length, len(content)) - first
        content.madvise(mmap.MADV_DONTNEED, first, length)


def read_array(content: Any, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array over these bytes, or a copy of them if they are of a mapped file.

    A file may change later. The copy is aligned so that XLA on a CPU can use it in place.
    """
    if not isinstance(content, mmap.mmap):
        count = math.prod(shape)
        return np.frombuffer(content, dtype, count, start if count else 0).reshape(shape)
    array = aligned_empty(dtype, shape)
    target, done = array.reshape(-1).view(np.uint8).data, 0
    for chunk in chunks(content, start, start + array.nbytes):
        target[done : done + len(chunk)] = chunk
        done += len(chunk)
    return array


def aligned_empty(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return an uninitialised array whose data begin at a multiple of 64 bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    skipped = -room.ctypes.data % ALIGNMENT
    return room[skipped : skipped + size].view(dtype).reshape(shape)
