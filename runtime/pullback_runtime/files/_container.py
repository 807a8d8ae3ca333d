"""The bytes of a saved program: sections, versions and the digest, without parsing MLIR.

A file is MLIR bytecode: a header and a row of sections, each with a declared length. The
section of strings holds, verbatim, the two string attributes that a save puts on the module:
the metadata (JSON) and the digest. Nothing here trusts a declared length, and nothing here
passes a byte to MLIR.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback_runtime._errors import PullbackRuntimeError
from pullback_runtime.files import _mmap

BYTECODE_MAGIC = b"ML\xefR"
PORTABLE_PRODUCER = "StableHLO_v"
DIGEST_ATTRIBUTE = "pullback.digest"
METADATA_ATTRIBUTE = "pullback.metadata"
FORMAT_VERSION = 1

DIGEST_PREFIX = b"pullback-sha256:"
DIGEST_PLACEHOLDER = (DIGEST_PREFIX + b"0" * 64).decode()
METADATA_PREFIX = b'{"pullback-format":'
LEADING_FORMAT = re.compile(re.escape(METADATA_PREFIX) + rb"(\d{1,9})[,}]")

STRING_SECTION = 0
ATTRIBUTE_SECTION = 2
SAVE_AGAIN = "copy the file once more, or save the program again"

# Rows of 128 KiB stay in the processor's second-level cache while they are folded.
FOLD_ROW_BYTES = 1 << 17
FOLD_MULTIPLIER = np.uint32(0x9E3779B1)


class ArtifactError(PullbackRuntimeError):
    """A file cannot be loaded, or a program cannot be saved."""


class Section(NamedTuple):
    """One section of MLIR bytecode: its number, and where it and its content stand in the file."""

    number: int
    head: int
    start: int
    end: int
    aligned: bool = False


@dataclass(frozen=True)
class Layout:
    """The layout of a file, read without parsing MLIR.

    `strings` is the range of the section of strings, `attributes` the size of the section that
    holds the data of constants, `digest_at` the position of the digest, and `text` the metadata
    as JSON.
    """

    producer: str
    strings: tuple[int, int]
    attributes: int
    digest_at: int | None
    text: bytes | None

    @functools.cached_property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata of the program; None for a file that pullback did not write."""
        return None if self.text is None else parse_metadata(self.text)

    @property
    def format(self) -> int | None:
        """The version of the file's format, found without parsing the JSON."""
        found = None if self.text is None else LEADING_FORMAT.match(self.text)
        return None if found is None else int(found[1])

    @property
    def stablehlo_version(self) -> str | None:
        """Version of the portable artifact; None for bytecode of any other producer."""
        if not self.producer.startswith(PORTABLE_PRODUCER):
            return None
        return self.producer[len(PORTABLE_PRODUCER) :]


class Truncated(ValueError):
    """The bytes end before what they declare."""


def is_bytecode(content: Any) -> bool:
    """Return True if the bytes begin like MLIR bytecode."""
    return bytes(content[:4]) == BYTECODE_MAGIC


def is_portable(content: Any) -> bool:
    """Return True if the bytes begin like a StableHLO portable artifact."""
    return is_bytecode(content) and PORTABLE_PRODUCER.encode() in content[:32]


def read_layout(content: Any) -> Layout:
    """Read the layout of MLIR bytecode; raise ArtifactError when it is truncated."""
    try:
        return _read_layout(content)
    except Truncated as error:
        raise ArtifactError(
            f"the file is damaged: {error}", where=f"a file of {len(content)} bytes", do=SAVE_AGAIN
        ) from error


def _read_layout(content: Any) -> Layout:
    start, end_of_producer = _producer(content)
    producer = content[start:end_of_producer].decode("ascii", "replace")
    places = {
        number: (first, last)
        for number, _, first, last, _ in _sections(content, end_of_producer + 1)
    }
    strings, (start, end) = places.get(STRING_SECTION), places.get(ATTRIBUTE_SECTION, (0, 0))
    if strings is None:
        raise Truncated("it has no section of strings")
    digest_at, text = _find_digest(content, *strings), _metadata(content, *strings)
    return Layout(producer, strings, end - start, digest_at, text)


def _producer(content: Any) -> tuple[int, int]:
    """Return start and end of the producer's name, after which the sections follow."""
    _, start = read_varint(content, len(BYTECODE_MAGIC))
    end = content.find(b"\0", start, start + 256)
    if end < 0:
        raise Truncated("the name of its producer does not end")
    return start, end


def sections(content: Any) -> Iterator[Section]:
    """Yield the sections in the order of the file; every length is checked against the file's.

    Raises: Truncated when one does not fit.
    """
    return map(Section._make, _sections(content, _producer(content)[1] + 1))


def _sections(content: Any, position: int) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield the fields of each section from `position` on, as plain tuples for speed."""
    size = len(content)
    while position < size:
        start, head = position, content[position]
        length, position = read_varint(content, position + 1)
        if head & 0x80:
            alignment, position = read_varint(content, position)
            if alignment == 0 or alignment & (alignment - 1):
                raise Truncated(f"a section is aligned to {alignment} bytes")
            position += -position % alignment
        end = position + length
        if end > size:
            raise Truncated(f"section {head & 0x7F} declares {length} bytes, past the end")
        yield head & 0x7F, start, position, end, bool(head & 0x80)
        position = end


def read_varint(content: Any, position: int) -> tuple[int, int]:
    """Decode MLIR's variable-width integer; return it and the position after it.

    The count of trailing zeros in the first byte tells how many bytes follow.
    """
    if position >= len(content):
        raise Truncated("it ends inside a number")
    first = content[position]
    if first & 1:
        return first >> 1, position + 1
    further = 8 if first == 0 else (first & -first).bit_length() - 1
    end = position + 1 + further
    if end > len(content):
        raise Truncated("it ends inside a number")
    if first == 0:
        return int.from_bytes(content[position + 1 : end], "little"), end
    return int.from_bytes(content[position:end], "little") >> (further + 1), end


def read_strings(section: Any) -> list[bytes]:
    """Return the strings of a section, each with its final NUL; their sizes come in reverse."""
    count, position = read_varint(section, 0)
    sizes = []
    for _ in range(count):
        size, position = read_varint(section, position)
        sizes.append(size)
    strings = []
    for size in reversed(sizes):
        strings.append(bytes(section[position : position + size]))
        position += size
    return strings


def _find_digest(content: Any, start: int, end: int) -> int | None:
    """Return the position of the digest string; None unless there is exactly one."""
    found = content.find(DIGEST_PREFIX, start, end)
    length = len(DIGEST_PLACEHOLDER)
    if found < 0 or content.find(DIGEST_PREFIX, found + 1, end) >= 0:
        return None
    ends_there = content[found + length : found + length + 1] == b"\0"
    return found if ends_there and found + length < end else None


def _metadata(content: Any, start: int, end: int) -> bytes | None:
    found = content.find(METADATA_PREFIX, start, end)
    if found < 0:
        return None
    stop = content.find(b"\0", found, end)
    return content[found : stop if stop >= 0 else end]


def parse_metadata(text: str | bytes) -> dict[str, Any]:
    """Parse the metadata's JSON; raise ArtifactError when it is not what a save wrote."""
    try:
        metadata = json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"the file's metadata is damaged: {error}", do=SAVE_AGAIN) from error
    if not isinstance(metadata, dict) or not isinstance(metadata.get("pullback-format"), int):
        raise ArtifactError("the file's metadata is damaged: it names no format", do=SAVE_AGAIN)
    return metadata


def dump_metadata(fields: dict[str, Any]) -> str:
    """Write metadata as JSON that begins with the format version, to be found by that prefix."""
    text = json.dumps({"pullback-format": FORMAT_VERSION, **fields}, separators=(",", ":"))
    assert text.encode().startswith(METADATA_PREFIX)
    return text


def fingerprint(content: Any, digest_at: int) -> str:
    """Compute the file's digest, with the stored digest's own 64 characters read as zeros."""
    size = len(content)
    first = min(max(digest_at + len(DIGEST_PREFIX), 0), size)
    last = min(max(digest_at + len(DIGEST_PLACEHOLDER), 0), size)
    zeros = b"0" * (last - first)
    if size <= FOLD_ROW_BYTES:
        return _fold((content[:first], zeros, content[last:]), size)
    whole = _mmap.chunks(content, 0, first), [zeros], _mmap.chunks(content, last)
    return _fold(itertools.chain(*whole), size)


def fold(array: np.ndarray) -> str:
    """Return the digest of an array's bytes."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return _fold([data], data.nbytes)


def _fold(pieces: Iterable[Any], size: int) -> str:
    """Return the digest of a content that comes in pieces.

    SHA-256 alone reads 2 GB/s, as fast as MLIR parses constants, so a large content is first
    folded to one row: rows are added and xored in turn into 32,768 columns, which are multiplied
    by an odd number after each four. Each step can be undone, so a change in one row always
    shows. This finds damage; it is not a signature, for an attacker who changes
    a file can write a new digest as well.
    """
    if size <= FOLD_ROW_BYTES:
        return hashlib.sha256(b"".join((size.to_bytes(8, "little"), *pieces))).hexdigest()
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    rows = (np.frombuffer(row, "<u4") for row in _rows(pieces))
    folded = _first_row() + next(rows)
    for number, row in enumerate(rows, 1):
        if number % 4 == 0:
            np.multiply(folded, FOLD_MULTIPLIER, out=folded)
        mix = np.bitwise_xor if number % 2 else np.add
        columns = folded[: row.size]
        mix(columns, row, out=columns)
    digest.update(folded.data)
    return digest.hexdigest()


@functools.cache
def _first_row() -> np.ndarray:
    """Return the initial value of the fold, already multiplied twice.

    It is not zero, because swapping the first two rows would go unseen: (0 + a) ^ b is b ^ a.
    """
    return np.arange(1, FOLD_ROW_BYTES // 4 + 1, dtype="<u4") * FOLD_MULTIPLIER * FOLD_MULTIPLIER


def _rows(pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield the content in rows: views of a piece, or copies where a row spans several.

    The last row may be shorter; it is padded to whole words only, for more zeros change nothing.
    """
    row = bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        position = min(-len(row) % FOLD_ROW_BYTES, len(view))
        row += view[:position]
        if len(row) == FOLD_ROW_BYTES:
            yield row
            row = bytearray()
        whole = len(view) - (len(view) - position) % FOLD_ROW_BYTES
        for start in range(position, whole, FOLD_ROW_BYTES):
            yield view[start : start + FOLD_ROW_BYTES]
        row += view[max(whole, position) :]
    if row:
        row += bytes(-len(row) % 4)
        yield row


def seal_pieces(pieces: Sequence[Any]) -> list[Any]:
    """Replace the digest placeholder in a content, given in pieces, by the content's digest.

    The pieces of class `bytes` must hold all strings of the file.
    """
    placeholder = DIGEST_PLACEHOLDER.encode() + b"\0"
    holders = [
        i for i, piece in enumerate(pieces) if type(piece) is bytes and DIGEST_PREFIX in piece
    ]
    if (
        len(holders) != 1
        or pieces[holders[0]].count(DIGEST_PREFIX) != 1
        or (placeholder not in pieces[holders[0]])
    ):
        raise ArtifactError(
            "the module holds no digest placeholder, or a string that looks like one",
            do=f"remove strings that begin with {DIGEST_PREFIX.decode()!r} from the program",
        )
    digest = _fold(pieces, sum(memoryview(piece).nbytes for piece in pieces))
    sealed = list(pieces)
    sealed[holders[0]] = pieces[holders[0]].replace(
        placeholder, DIGEST_PREFIX + digest.encode() + b"\0"
    )
    return sealed


def is_whole(content: Any, layout: Layout) -> bool:
    """Return True if the digest fits the bytes, False if pullback did not write the file.

    Raises: ArtifactError when the digest does not fit, or is missing beside our metadata.
    """
    if layout.digest_at is None:
        if layout.text is None:
            return False
        raise ArtifactError("the file is damaged: its digest is missing", do=SAVE_AGAIN)
    start = layout.digest_at + len(DIGEST_PREFIX)
    if content[start : start + 64] == fingerprint(content, layout.digest_at).encode():
        return True
    raise ArtifactError(
        "the file is damaged: its content does not have the digest that was saved with it",
        where=f"a file of {len(content)} bytes",
        do=SAVE_AGAIN,
    )
