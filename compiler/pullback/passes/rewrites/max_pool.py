"""The derivative of max pooling as arithmetic."""

from __future__ import annotations

import itertools
import math
from typing import Any

from pullback.ir import build
from pullback.ir.build import Value, enumerator, integers_or_ones, one_number, paddings
from pullback.ir.regions import blocks, operations, terminator
from pullback.passes.rewrites.rewrite import Rewrite

MOST_PLACES = 16
"""Bounds the window that is rewritten: the code grows with it."""


def _sizes_and_strides(op: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    count = build.rank(op.operands[0])
    sizes = integers_or_ones(op.attributes, "window_dimensions", count)
    return sizes, integers_or_ones(op.attributes, "window_strides", count)


def _applies(op: Any) -> bool:
    """Return True for a small window without padding whose cotangents are added to zero."""
    sizes, _ = _sizes_and_strides(op)
    is_padded = any(map(any, paddings(op.attributes, len(sizes))))
    if is_padded or not 1 < math.prod(sizes) <= MOST_PLACES or one_number(op.operands[2]) != 0:
        return False
    if {-1, 0} & {*build.shape(op.operands[0]), *build.shape(op.operands[1])}:
        return False
    return all(map(_is_plain, blocks(op), ("stablehlo.compare", "stablehlo.add")))


def _is_plain(block: Any, name: str) -> bool:
    """Return True if a block returns an op of its arguments: a comparison of numbers, or a sum."""
    (op, *_), end = operations(block), terminator(block)
    if op.name != name or list(op.operands) != list(block.arguments):
        return False
    kind = "compare_type"
    if kind in op.attributes and enumerator(op.attributes[kind]) == "TOTALORDER":
        return False
    return list(end.operands) == list(op.results)


def _comparison(op: Any) -> Any:
    """Return the op that compares the element chosen so far with the next one."""
    return operations(blocks(op)[0])[0]


def _emit(op: Any, functions: dict[str, Any]) -> Value | None:
    x, ct, zero = op.operands
    sizes, strides = _sizes_and_strides(op)
    direction = enumerator(_comparison(op).attributes["comparison_direction"])
    starts = list(itertools.product(*map(range, sizes)))
    ends = [
        tuple(a + (n - 1) * s + 1 for a, n, s in zip(start, build.shape(ct), strides, strict=True))
        for start in starts
    ]
    places = [build.slice_(x, *edges, strides) for edges in zip(starts, ends, strict=True)]
    best = places[0]
    which = build.zeros(build.with_element(best.type, build.element_type("i32")))
    for number, place in enumerate(places[1:], 1):
        stays = build.compare(direction, best, place)
        best = build.select(stays, best, place)
        which = build.select(stays, which, build.full_like(which, number))
    total = None
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        chosen = build.select(build.compare("EQ", which, number), ct, None)
        rest = [n - limit for n, limit in zip(build.shape(x), end, strict=True)]
        total = build.add(total, build.pad(chosen, zero, start, rest, [s - 1 for s in strides]))
    return total


POOL_BY_ARITHMETIC = Rewrite("stablehlo.select_and_scatter", _applies, _emit)
"""Replace `select_and_scatter` by comparisons of slices, one for each place in the window.

XLA for CPUs runs the op element by element, on one core. The comparisons are made in its order,
with its choice among ties and NaN. The result is the same to the last bit where no windows overlap;
where they do, cotangents of one element are added in another order.
"""
