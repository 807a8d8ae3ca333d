"""Sum the cotangents of slices of a value into that of the value."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from pullback.autodiff.registry import InPlace, Part
from pullback.autodiff.zeros import is_zero_constant
from pullback.ir import build
from pullback.ir.build import Value


def in_place(part: Part) -> InPlace:
    """Return a contribution that adds a part where it lies, and touches nothing else."""
    start, ct = part

    def update(total: Value) -> Value:
        if is_zero_constant(total):
            return _among_zeros(part, build.shape(total))
        starts = [build.full(build.scalar("i32"), i) for i in start]
        limits = [i + n for i, n in zip(start, build.shape(ct), strict=True)]
        here = build.slice_(total, start, limits)
        return build.dynamic_update_slice(total, build.add(here, ct), starts)

    return InPlace(update, part)


def summed(total: Value | None, places: Sequence[InPlace], type: Any) -> Value:
    """Sum a dense value and contributions in place, with few passes over the whole.

    If there is nothing else, parts side by side are concatenated. XLA fuses an addition with a pad,
    but not two updates: a part that is half of the whole or more is padded and added, and so is the
    part beside it. Others are added in place, but for one or two in a value that would be copied
    first.
    """
    dims = tuple(build.shape_of(type))
    others = [place for place in places if place.part is None]
    parts = _merged([place.part for place in places if place.part is not None])
    if total is not None and is_zero_constant(total):
        total = None
    if -1 not in dims:
        if total is None and not others and len(parts) > 1:
            whole = joined(list(parts.values()), type)
            if whole is not None:
                return whole
        for place in [each for each in parts if _is_wide(each, dims)]:
            pair = [parts.pop(each) for each in (place, _beside(place, dims)) if each in parts]
            if pair:  # XLA takes twice as long to add one after the other to the total
                padded = [_among_zeros(each, dims) for each in pair]
                total = build.add(total, functools.reduce(build.add, padded))
        if total is not None and len(parts) <= 2 and _is_copied(total):
            whole = _added(total, list(parts.values()))
            if whole is not None:
                total, parts = whole, {}
    if total is None:
        total = build.zeros(type)
    for each in [*map(in_place, parts.values()), *others]:
        total = each.update(total)
    return total


def joined(parts: Sequence[Part], type: Any) -> Value | None:
    """Concatenate parts, and zeros between them, to a value of the type.

    None if parts overlap, or do not lie along one dimension.
    """
    row = _in_a_row(parts, build.shape_of(type))
    if row is None:
        return None
    dimension, stretches = row
    pieces = [_gap(type, dimension, b - a) if v is None else v for a, b, v in stretches]
    return build.concatenate(pieces, dimension)


def _gap(type: Any, dimension: int, size: int) -> Value:
    dims = list(build.shape_of(type))
    dims[dimension] = size
    return build.zeros(build.with_shape(type, tuple(dims)))


Stretch = tuple[int, int, Value | None]  # its start and end along a dimension, and a part or none


def _in_a_row(parts: Sequence[Part], dims: Sequence[int]) -> tuple[int, list[Stretch]] | None:
    """Return the one dimension along which parts lie, and the parts in order with their gaps."""
    cut = {
        d
        for start, v in parts
        for d, place in enumerate(zip(start, build.shape(v), strict=True))
        if place != (0, dims[d])
    }
    if len(cut) != 1:
        return None
    (dimension,) = cut
    found: list[Stretch] = []
    end = 0
    for start, v in sorted(parts, key=lambda part: part.start[dimension]):
        first = start[dimension]
        if first < end:
            return None
        if first > end:
            found.append((end, first, None))
        end = first + build.shape(v)[dimension]
        found.append((first, end, v))
    if end < dims[dimension]:
        found.append((end, dims[dimension], None))
    return dimension, found


def _is_copied(total: Value) -> bool:
    """Return True if updating a total would copy it first: it is a slice, or a sum with one."""
    terms = total.owner.operands if build.is_result_of(total, "stablehlo.add") else [total]
    return any(build.is_result_of(term, "stablehlo.slice") for term in terms)


def _added(total: Value, parts: Sequence[Part]) -> Value | None:
    """Add few parts to a total in one pass, as at the edges of a `jnp.pad`; None if they overlap.

    Along the last dimension, where XLA concatenates slowly, the parts are padded; along others, the
    pieces are concatenated. In a vector, XLA is fastest in place.
    """
    dims = build.shape(total)
    row = _in_a_row(parts, dims)
    if row is None or len(dims) == 1:
        return None
    dimension, stretches = row
    if dimension == len(dims) - 1:
        return functools.reduce(build.add, (_among_zeros(each, dims) for each in parts), total)
    pieces = [build.add(build.part(total, dimension, a, b), v) for a, b, v in stretches]
    return build.concatenate(pieces, dimension)


Place = tuple[tuple[int, ...], tuple[int, ...]]  # where a part starts, and its shape


def _merged(parts: Sequence[Part]) -> dict[Place, Part]:
    """Sum the parts that have the same place; drop empty ones."""
    found: dict[Place, Part] = {}
    for start, v in parts:
        place = tuple(start), tuple(build.shape(v))
        if 0 not in place[1]:
            known = found.get(place)
            found[place] = Part(start, v if known is None else build.add(known.value, v))
    return found


def _is_wide(place: Place, dims: Sequence[int]) -> bool:
    return 2 * math.prod(place[1]) >= math.prod(dims)


def _beside(place: Place, dims: Sequence[int]) -> Place | None:
    """Return the place of the rest of the whole, if that is one, as after a roll or a flip."""
    start, sizes = place
    cut = [d for d, whole in enumerate(dims) if sizes[d] != whole]
    if len(cut) != 1:
        return None
    (d,) = cut
    if start[d] not in (0, dims[d] - sizes[d]):
        return None
    rest = dims[d] - sizes[d]
    first = sizes[d] if start[d] == 0 else 0
    return (*start[:d], first, *start[d + 1 :]), (*sizes[:d], rest, *sizes[d + 1 :])


def _among_zeros(part: Part, dims: Sequence[int]) -> Value:
    ends = [i + n for i, n in zip(part.start, build.shape(part.value), strict=True)]
    high = [d - e for d, e in zip(dims, ends, strict=True)]
    return build.pad(part.value, 0, part.start, high)
