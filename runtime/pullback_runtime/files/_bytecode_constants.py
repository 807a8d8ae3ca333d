"""Replace the data of constants in MLIR bytecode, without MLIR: large arrays never enter it.

A constant of a portable artifact is an entry of the section of attributes: a code, the number of
its type, and its data with their length. A splat has the data of one element. So a module is
written with a small *stub*, a splat, in place of each large array, and the array's own bytes take
the place of the stub's in the file; reading goes the other way. What lies in the file is what any
StableHLO writer would have put there.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback_runtime.files._container import (
    ATTRIBUTE_SECTION,
    SAVE_AGAIN,
    ArtifactError,
    Section,
    Truncated,
    read_varint,
    sections,
)

OFFSET_SECTION = 3
TENSOR_CODE = 15  # `TensorV1Attr` of VHLO, which never changes its numbers


class Blob(NamedTuple):
    """The data of one constant: the attribute's number, and where entry and data stand."""

    entry: int
    entry_start: int
    length_at: int
    start: int
    end: int


@dataclass(frozen=True)
class Tables:
    """The two sections of a file that describe attributes: their sizes, and their content."""

    parts: tuple[Section, ...]
    offsets: Section
    attributes: Section
    sizes: list[tuple[int, int, int]]  # of each entry, and where the number begins and ends
    count: int


def read_tables(content: Any) -> Tables:
    """Locate the attributes; raise ArtifactError where sections do not fit together."""
    try:
        return _read_tables(content)
    except (Truncated, KeyError) as error:
        raise ArtifactError(f"the file is damaged: {error}", do=SAVE_AGAIN) from error


def _read_tables(content: Any) -> Tables:
    parts = tuple(sections(content))
    named = {part.number: part for part in parts}
    offsets = named[OFFSET_SECTION]
    table = bytes(content[offsets.start : offsets.end])
    count, position = read_varint(table, 0)
    _, position = read_varint(table, position)
    sizes = []
    while position < len(table):
        _, position = read_varint(table, position)  # the dialect
        members, position = read_varint(table, position)
        for _ in range(members):
            at = position
            value, position = read_varint(table, position)
            sizes.append((value, at, position))
    return Tables(parts, offsets, named[ATTRIBUTE_SECTION], sizes, count)


def blobs(content: Any, tables: Tables, wanted: Container[int] | None = None) -> Iterator[Blob]:
    """Yield the data of all constants, or of the wanted entries, in the order of the file."""
    position = tables.attributes.start
    for entry, (value, _, _) in enumerate(tables.sizes[: tables.count]):
        end = position + (value >> 1)
        if end > tables.attributes.end:
            raise ArtifactError("the file is damaged: an attribute ends too late", do=SAVE_AGAIN)
        if value & 1 and (wanted is None or entry in wanted):
            found = _blob(bytes(content[position : min(end, position + 32)]), entry, position, end)
            if found is not None:
                yield found
        position = end


def _blob(head: bytes, entry: int, position: int, end: int) -> Blob | None:
    try:
        code, at = read_varint(head, 0)
        if code != TENSOR_CODE:
            return None
        _, length_at = read_varint(head, at)
        length, at = read_varint(head, length_at)
    except Truncated:
        return None
    fits = position + at + length == end
    return Blob(entry, position, position + length_at, position + at, end) if fits else None


def replace(content: Any, tables: Tables, data: Mapping[Blob, Any]) -> list[Any]:
    """Replace the data of some constants; return the new file as a list of buffers.

    Raises: ArtifactError when a section is aligned; pullback writes no such file.
    """
    if any(part.aligned for part in tables.parts):
        raise ArtifactError("the file has aligned sections", do="save the program again")
    pieces: list[Any] = [content[: tables.parts[0].head]]
    for part in tables.parts:
        if part == tables.attributes:
            body = list(_attributes(content, tables, data))
        else:
            body = [content[part.start : part.end]]
        if part == tables.offsets:
            body = [_offsets(body[0], tables, data)]
        pieces += [bytes([part.number]), varint(total(body)), *body]
    return pieces


def _offsets(table: bytes, tables: Tables, data: Mapping[Blob, Any]) -> bytes:
    """Return the offset table, updated with the sizes of the changed entries."""
    changed = {blob.entry: _entry_size(blob, new) for blob, new in data.items()}
    done, pieces = 0, []
    for entry, size in sorted(changed.items()):
        value, at, after = tables.sizes[entry]
        pieces += [table[done:at], varint(size << 1 | value & 1)]
        done = after
    return b"".join([*pieces, table[done:]])


def _entry_size(blob: Blob, data: Any) -> int:
    length = memoryview(data).nbytes
    return blob.length_at - blob.entry_start + len(varint(length)) + length


def _attributes(content: Any, tables: Tables, data: Mapping[Blob, Any]) -> Iterator[Any]:
    done = tables.attributes.start
    for blob in sorted(data, key=lambda blob: blob.entry):
        yield content[done : blob.length_at]
        yield varint(memoryview(data[blob]).nbytes)
        yield data[blob]
        done = blob.end
    yield content[done : tables.attributes.end]


def total(pieces: Sequence[Any]) -> int:
    """Return the total size of some buffers in bytes."""
    return sum(memoryview(piece).nbytes for piece in pieces)


def varint(value: int) -> bytes:
    """Encode an integer as MLIR's variable-width integer."""
    width = max(1, -(-value.bit_length() // 7))
    if width > 8:
        return b"\0" + value.to_bytes(8, "little")
    return ((value << 1 | 1) << (width - 1)).to_bytes(width, "little")


def as_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array of any dtype, copied only if it is not contiguous."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data
