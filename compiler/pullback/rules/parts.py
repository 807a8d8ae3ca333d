"""Cotangents of slices of a value, which lie side by side in its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.rules.registry import Part


def joined(parts: Sequence[Part], type: Any) -> Value | None:
    """A value of the type, of its parts and zeros elsewhere: one concatenation.

    None if parts overlap, or lie otherwise than along one dimension.
    """
    dims = build.shape_of(type)
    cut = {
        d
        for start, v in parts
        for d, place in enumerate(zip(start, build.shape(v), strict=True))
        if place != (0, dims[d])
    }
    if len(cut) != 1 or -1 in dims:
        return None
    (dimension,) = cut
    pieces, end = [], 0
    for start, v in sorted(parts, key=lambda part: part.start[dimension]):
        first = start[dimension]
        if first < end:
            return None
        pieces += [*_gap(type, dimension, first - end), v]
        end = first + build.shape(v)[dimension]
    pieces += _gap(type, dimension, dims[dimension] - end)
    return build.concatenate(pieces, dimension)


def _gap(type: Any, dimension: int, size: int) -> list[Value]:
    if not size:
        return []
    dims = list(build.shape_of(type))
    dims[dimension] = size
    return [build.zeros(build.with_shape(type, tuple(dims)))]
