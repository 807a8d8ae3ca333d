"""Keep the pattern of a sparse derivative in a file, beside the program of its values."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback_runtime.files._container import SAVE_AGAIN, ArtifactError

METADATA = "pattern"
"""Name the metadata of an entry that hold the pattern of its values."""

COMPRESSED = "columns", "rows", "symmetric"


@dataclass(frozen=True, eq=False)
class Pattern:
    """Say where the non-zeros of a sparse matrix are, in the order of the values; row by row.

    `scipy.sparse.coo_matrix((values, (pattern.rows, pattern.cols)), pattern.shape)` is the matrix.

    Attributes:
      rows: the row of each value, int32.
      cols: the column of each value, int32.
      shape: the shape of the matrix.
      colors: the color of each column, or of each row if `compressed` is "rows"; -1 where there
        are no non-zeros. The values take one product with a vector for each color.
      compressed: what has colors: "columns" (the products are of forward mode), "rows" (of
        reverse mode) or "symmetric" (a star coloring of a Hessian).
    """

    rows: np.ndarray
    cols: np.ndarray
    shape: tuple[int, int]
    colors: np.ndarray
    compressed: str

    @property
    def nnz(self) -> int:
        """Return the number of values."""
        return len(self.rows)

    @property
    def num_colors(self) -> int:
        """Return the number of colors."""
        return int(self.colors.max()) + 1 if len(self.colors) else 0

    def __str__(self) -> str:
        height, width = self.shape
        return (
            f"{height} x {width}, {self.nnz:,} non-zeros, {self.num_colors} colors "
            f"({self.compressed})"
        )

    def __repr__(self) -> str:
        return f"Pattern({self})"


def describe(pattern: Pattern) -> dict[str, Any]:
    """Return a pattern as metadata of a file."""
    arrays = {"rows": pattern.rows, "cols": pattern.cols, "colors": pattern.colors}
    return {
        "shape": list(pattern.shape),
        "nnz": pattern.nnz,
        "compressed": pattern.compressed,
        **{name: _packed(array) for name, array in arrays.items()},
    }


def of_metadata(metadata: dict[str, Any]) -> Pattern | None:
    """Return the pattern that a save wrote; None if the program has none.

    Raises: ArtifactError for damaged metadata.
    """
    found = metadata.get(METADATA)
    if found is None:
        return None
    try:
        shape, compressed = tuple(map(int, found["shape"])), str(found["compressed"])
        height, width = shape
        colored = height if compressed == "rows" else width
        rows = _unpacked(found["rows"], found["nnz"], 0, height)
        cols = _unpacked(found["cols"], found["nnz"], 0, width)
        colors = _unpacked(found["colors"], colored, -1, colored)
        if compressed not in COMPRESSED:
            raise ValueError(compressed)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise ArtifactError(
            f"the file's metadata are damaged: {METADATA} ({error})", do=SAVE_AGAIN
        ) from error
    return Pattern(rows, cols, (height, width), colors, compressed)


def _packed(array: np.ndarray) -> str:
    """Return integers as text: their differences, of which most are small, compressed."""
    differences = np.diff(array.astype("<i4"), prepend=np.int32(0))
    return base64.b64encode(zlib.compress(differences.astype("<i4").tobytes())).decode()


def _unpacked(text: str, count: int, least: int, end: int) -> np.ndarray:
    data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 4 * count + 1)
    differences = np.frombuffer(data, "<i4")
    array = np.cumsum(differences, dtype=np.int64)
    if len(array) != count or np.any(array < least) or np.any(array >= end):
        raise ValueError("numbers out of range")
    return array.astype(np.int32)
