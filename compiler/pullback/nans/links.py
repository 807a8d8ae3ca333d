"""Find which elements of an op's operands the elements of its result depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pullback.errors import PullbackError
from pullback.ir import build
from pullback.ir.dataflow import CONTROL
from pullback.ir.regions import captures
from pullback.ir.symbols import called
from pullback.ir.traits import ELEMENTWISE, MOVES, OBSERVED
from pullback_runtime._jax import operations_where

Array = np.ndarray[Any, Any]
Mask = np.ndarray[Any, Any]
Ends = np.ndarray[Any, Any]
"""A number for each element; 0 is for none."""

Bad = Callable[[Array], Mask]
"""Marks the elements that are looked for, such as `np.isnan`."""

Run = Callable[[Any, Sequence[Any]], list[Array]]
"""Runs one op on operands, and returns its results."""

MOST_RUNS = 64
"""Bound the runs of an op that show which elements of its operands count."""


@dataclass(frozen=True)
class Link:
    """Describe how a result depends on an operand.

    Attributes:
      operand: the position of the operand.
      covers: the elements of the result that are bad since elements of the operand are.
      backward: maps numbers of elements of the result to those of the elements of the operand that
        these depend on: the largest one.
      is_exact: False if the result may depend on less.
      is_tried: True if `backward` is of bad elements of the operand alone.
    """

    operand: int
    covers: Mask
    backward: Callable[[Ends], Ends]
    is_exact: bool = True
    is_tried: bool = False

    def causes(self, x: Array, ends: Ends) -> Mask:
        """Return the elements of the operand that elements of the result depend on."""
        return np.ones(x.shape, bool) if self.is_tried else self.backward(ends) > 0


def links(
    op: Any, operands: Sequence[Array | None], result: int, wanted: Mask, bad: Bad, run: Run
) -> list[Link]:
    """Return how elements of a result depend on the operands that hold floats.

    An op that is neither elementwise nor moves elements is run with some of the bad elements at a
    time. Where that says nothing, each element depends on all elements of each operand.
    """
    shape = build.shape(op.results[result])
    floats = {i: x for i, x in enumerate(operands) if x is not None and holds_floats(x)}
    if op.name == "stablehlo.optimization_barrier":
        return [_elementwise(i, x, shape, bad) for i, x in floats.items() if i == result]
    if op.name in ELEMENTWISE - MOVES:
        return [_elementwise(i, x, shape, bad) for i, x in floats.items()]
    found = None
    if all(x is not None for x in operands) and _can_run(op):
        try:
            if op.name in MOVES:
                return _moved(op, operands, floats, bad, run)
            found = _tried(op, operands, floats, result, wanted, bad, run)
        except PullbackError:  # JAX has no primitive for the op
            pass
    return found or [_on_all(i, x, shape, bad, is_exact=False) for i, x in floats.items()]


def holds_floats(x: Array) -> bool:
    """Return True if an array may hold a NaN."""
    return jax.numpy.issubdtype(x.dtype, jax.numpy.inexact)


def _elementwise(operand: int, x: Array, shape: tuple[int, ...], bad: Bad) -> Link:
    """Return the link of an elementwise op; a scalar operand is for all elements."""
    if x.shape == shape:
        return Link(operand, bad(x), lambda ends: ends)
    return _on_all(operand, x, shape, bad)


def _on_all(
    operand: int, x: Array, shape: tuple[int, ...], bad: Bad, is_exact: bool = True
) -> Link:
    covers = np.full(shape, bad(x).any())
    return Link(operand, covers, lambda ends: np.full(x.shape, ends.max(initial=0)), is_exact)


def _moved(
    op: Any, operands: Sequence[Any], floats: dict[int, Array], bad: Bad, run: Run
) -> list[Link]:
    """Return the links of an op that only moves elements, found by moving their numbers."""
    numbered, first, count = list(operands), {}, 0
    for i, x in floats.items():
        numbered[i] = np.arange(count, count + x.size, dtype=np.int32).reshape(x.shape)
        first[i], count = count, count + x.size
    (sources,) = run(op, numbered)
    return [_of_sources(i, x, sources - first[i], bad) for i, x in floats.items()]


def _of_sources(operand: int, x: Array, sources: Array, bad: Bad) -> Link:
    """Return the link to one operand, given the number of the source of each element."""
    mine = (sources >= 0) & (sources < x.size)
    covers = np.array(mine)
    covers[mine] = bad(x).ravel()[sources[mine]]

    def backward(ends: Ends) -> Ends:
        found = np.zeros(x.size, ends.dtype)
        np.maximum.at(found, sources[mine], ends[mine])
        return found.reshape(x.shape)

    return Link(operand, covers, backward)


def _can_run(op: Any) -> bool:
    """Return True if an op can run by itself: it acts on nothing, and uses nothing else."""
    if op.name == "stablehlo.custom_call" or op.name in CONTROL | OBSERVED:
        return False
    return (
        op.name.startswith("stablehlo.") and not captures(op) and not operations_where(op, called)
    )


def _tried(
    op: Any,
    operands: Sequence[Any],
    floats: dict[int, Array],
    result: int,
    wanted: Mask,
    bad: Bad,
    run: Run,
) -> list[Link] | None:
    """Return the links of an op that is run with groups of its bad elements, and ones for others.

    A group that makes a wanted element bad is halved; one that does not is left. Return None if
    elements are only bad together.
    """

    def bad_with(operand: int, elements: Array) -> Mask:
        inputs = list(operands)
        for i, x in floats.items():
            hidden = bad(x)
            if i == operand:
                hidden.ravel()[elements] = False
            inputs[i] = np.where(hidden, np.ones((), x.dtype), x)
        return bad(run(op, inputs)[result]) & wanted

    own = bad_with(-1, np.array([]))
    waiting = [(i, np.flatnonzero(bad(x))) for i, x in floats.items()]
    groups: list[tuple[int, Array, Mask]] = []
    runs = 0
    while waiting:
        waiting.sort(key=lambda group: group[1].size)
        i, elements = waiting.pop()
        found, runs = bad_with(i, elements) & ~own, runs + 1
        if found.any() and elements.size > 1 and runs < MOST_RUNS:
            waiting += [(i, half) for half in np.array_split(elements, 2)]
        elif found.any():
            groups.append((i, elements, found))
    explained = np.any([own, *(found for *_, found in groups)], axis=0)
    if (bad(run(op, operands)[result]) & wanted & ~explained).any():
        return None
    return [
        _of_groups(i, x, own, [each[1:] for each in groups if each[0] == i])
        for i, x in floats.items()
    ]


def _of_groups(operand: int, x: Array, own: Mask, groups: list[tuple[Array, Mask]]) -> Link:
    def backward(ends: Ends) -> Ends:
        moved = np.zeros(x.size, ends.dtype)
        for elements, found in groups:
            moved[elements] = ends[found].max(initial=0)
        return moved.reshape(x.shape)

    covers = np.any([np.zeros_like(own), *(found for _, found in groups)], axis=0)
    is_exact = all(elements.size == 1 for elements, _ in groups)
    return Link(operand, covers, backward, is_exact, is_tried=True)
