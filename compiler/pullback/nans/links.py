"""Links: which elements of an op's operands the elements of its result depend on."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np

from pullback import _jax
from pullback.ir import build
from pullback.ir.regions import captures
from pullback.ir.symbols import called
from pullback.ir.traits import ELEMENTWISE, MOVES
from pullback_runtime._jax import operations_where

Array = np.ndarray[Any, Any]
Mask = np.ndarray[Any, Any]
Ends = np.ndarray[Any, Any]
"""A number for each element; 0 is for none."""

Bad = Callable[[Array], Mask]
"""Marks the elements that are looked for, such as `np.isnan`."""

MOST_TRIALS = 32
"""The number of elements for each of which an op is run, to see what depends on it."""


class Runner(Protocol):
    """What runs single ops."""

    def move(self, op: Any, operands: Sequence[Any], floats: Sequence[int]) -> Array:
        """Run an op that only moves elements on integers in the place of its floats."""

    def alone(self, op: Any, operands: Sequence[Any]) -> list[Array]:
        """Run an op on other values, and return its results."""


@dataclass(frozen=True)
class Link:
    """The dependence of a result on an operand, as two maps.

    Attributes:
      operand: the position of the operand.
      forward: from elements of the operand to those of the result that depend on any of them.
      backward: from numbers of elements of the result to those of the elements of the operand that
        these depend on: the largest one.
      is_known: False if nothing is known of the op, which may depend on less.
      is_tried: True if the maps are of bad elements of the operand alone.
    """

    operand: int
    forward: Callable[[Mask], Mask]
    backward: Callable[[Ends], Ends]
    is_known: bool = True
    is_tried: bool = False


def links(
    op: Any, operands: Sequence[Array | None], result: int, runner: Runner, bad: Bad
) -> list[Link]:
    """Return how a result depends on the operands that hold floats, as exactly as is known.

    Where nothing is known of an op, it is tried; if that would take too long, each element depends
    on all elements of each operand.
    """
    name = op.name.removeprefix("stablehlo.")
    shape = build.shape(op.results[result])
    floats = [i for i, x in enumerate(operands) if x is not None and holds_floats(x)]
    if name == "select" and operands[0] is not None:
        return [_chosen(i, operands[0] if i == 1 else ~operands[0], shape) for i in floats]
    if name == "optimization_barrier":
        return [_same(result, shape, shape)] if result in floats else []
    if op.name in ELEMENTWISE:
        return [_same(i, build.shape(op.operands[i]), shape) for i in floats]
    if op.name in MOVES:
        return _moved(op, operands, floats, runner)
    if name == "reduce":
        return _reduced(op, floats, shape)
    if name == "dot_general":
        return [_contracted(op, i) for i in floats]
    alike = (_on_all(i, build.shape(op.operands[i]), shape) for i in floats)
    tried = _tried(op, operands, floats, result, runner, bad)
    return tried or [replace(link, is_known=False) for link in alike]


def holds_floats(x: Array) -> bool:
    """Return True if an array may hold a NaN."""
    return jax.numpy.issubdtype(x.dtype, jax.numpy.inexact)


def _same(operand: int, inner: tuple[int, ...], outer: tuple[int, ...]) -> Link:
    """Return the link of an elementwise op; a scalar operand is for all elements."""
    if inner == outer:
        return Link(operand, lambda mask: mask, lambda ends: ends)
    return _on_all(operand, inner, outer)


def _chosen(operand: int, where: Mask, shape: tuple[int, ...]) -> Link:
    where = np.broadcast_to(where, shape)
    return Link(operand, lambda mask: mask & where, lambda ends: np.where(where, ends, 0))


def _on_all(operand: int, inner: tuple[int, ...], outer: tuple[int, ...]) -> Link:
    return Link(
        operand,
        lambda mask: np.full(outer, mask.any()),
        lambda ends: np.full(inner, ends.max(initial=0)),
    )


def _reduced(op: Any, floats: Sequence[int], outer: tuple[int, ...]) -> list[Link]:
    """Return the links of a reduction: to the elements along its dimensions, and to its inits."""
    dimensions = build.integers(op.attributes["dimensions"])
    count = len(op.results)

    def along(i: int) -> Link:
        inner = build.shape(op.operands[i])
        return Link(
            i,
            lambda mask: np.asarray(mask.any(axis=dimensions)),
            lambda ends: np.broadcast_to(np.expand_dims(ends, dimensions), inner),
        )

    return [along(i) if i < count else _on_all(i, (), outer) for i in floats]


def _contracted(op: Any, operand: int) -> Link:
    """Return the link of a product to one of its two factors."""
    numbers = _jax.stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
    contract = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    shapes = [build.shape(v) for v in op.operands]
    names = [list(string.ascii_lowercase[: len(shapes[0])]), [""] * len(shapes[1])]
    rest = iter(string.ascii_uppercase)
    for one, other in zip([*batch[0], *contract[0]], [*batch[1], *contract[1]], strict=True):
        names[1][other] = names[0][one]
    names[1] = [name or next(rest) for name in names[1]]
    free = [
        [n for i, n in enumerate(names[side]) if i not in batch[side] and i not in contract[side]]
        for side in (0, 1)
    ]
    out = "".join([names[0][i] for i in batch[0]] + free[0] + free[1])
    mine, sizes = "".join(names[operand]), dict(zip(names[0], shapes[0], strict=True))
    sizes.update(zip(names[1], shapes[1], strict=True))
    return Link(
        operand,
        lambda mask: _spread(mask, mine, out, sizes),
        lambda ends: _spread(ends, out, mine, sizes),
    )


def _spread(x: Array, old: str, new: str, sizes: dict[str, int]) -> Array:
    """Return an array with other named dimensions: of those that vanish, the largest element."""
    kept = "".join(name for name in new if name in old)
    gone = tuple(i for i, name in enumerate(old) if name not in new)
    reduced = np.asarray(x.max(axis=gone, initial=0)).astype(x.dtype)
    left = "".join(name for name in old if name in new)
    ordered = reduced.transpose([left.index(name) for name in kept])
    added = np.expand_dims(ordered, tuple(i for i, name in enumerate(new) if name not in old))
    return np.broadcast_to(added, [sizes[name] for name in new])


# ---------------------------------------------------------------- ops that move elements


def _moved(
    op: Any, operands: Sequence[Array | None], floats: Sequence[int], runner: Runner
) -> list[Link]:
    """Return the links of an op that only moves elements, found by moving their numbers."""
    numbered, first = list(operands), {}
    count = 0
    for i in floats:
        shape = build.shape(op.operands[i])
        size = int(np.prod(shape))
        numbered[i] = np.arange(count, count + size, dtype=np.int32).reshape(shape)
        first[i], count = count, count + size
    if any(x is None for x in numbered):
        return [_on_all(i, build.shape(op.operands[i]), build.shape(op.result)) for i in floats]
    sources = runner.move(op, numbered, floats)
    return [_of_sources(i, sources, first[i], build.shape(op.operands[i])) for i in floats]


def _of_sources(operand: int, sources: Array, first: int, shape: tuple[int, ...]) -> Link:
    """Return the link to one operand, given the number of the source of each element."""
    size = int(np.prod(shape))
    here = np.asarray(sources - first)
    mine = (here >= 0) & (here < size)

    def forward(mask: Mask) -> Mask:
        return mine & mask.ravel()[np.where(mine, here, 0)] if size else mine

    def backward(ends: Ends) -> Ends:
        found = np.zeros(size, ends.dtype)
        np.maximum.at(found, here[mine], ends[mine])
        return found.reshape(shape)

    return Link(operand, forward, backward)


# ---------------------------------------------------------------- ops that are tried

UNTRIED = frozenset(["stablehlo.custom_call", "stablehlo.rng", "stablehlo.infeed"])


def _tried(
    op: Any,
    operands: Sequence[Any],
    floats: Sequence[int],
    result: int,
    runner: Runner,
    bad: Bad,
) -> list[Link] | None:
    """Return the links of an op that is run with one bad element at a time, and ones for others.

    None if it cannot be tried so: if there are too many, or if they are only bad together.
    """
    elements = [(i, tuple(e)) for i in floats for e in np.argwhere(bad(operands[i]))]
    if any(x is None for x in operands) or len(elements) > MOST_TRIALS or not _is_alone(op):
        return None

    def bad_with(kept: tuple[int, tuple[int, ...]] | None) -> Mask:
        inputs = list(operands)
        for i in floats:
            inputs[i] = np.where(bad(operands[i]), np.ones((), operands[i].dtype), operands[i])
        if kept is not None:
            i, element = kept
            inputs[i][element] = operands[i][element]
        return bad(runner.alone(op, inputs)[result])

    own = bad_with(None)
    tried = [(*each, bad_with(each) & ~own) for each in elements]
    explained = np.any([own, *(found for _, _, found in tried)], axis=0)
    if (bad(runner.alone(op, operands)[result]) & ~explained).any():
        return None
    return [_seen(i, operands[i].shape, tried) for i in floats]


def _is_alone(op: Any) -> bool:
    """Return True if an op can run by itself: it acts on nothing, and uses nothing else."""
    if not op.name.startswith("stablehlo.") or op.name in UNTRIED:
        return False
    return not captures(op) and not operations_where(op, called)


def _seen(
    operand: int, shape: tuple[int, ...], seen: Sequence[tuple[int, tuple[int, ...], Mask]]
) -> Link:
    mine = [(element, found) for i, element, found in seen if i == operand]

    def forward(mask: Mask) -> Mask:
        return np.any([found for element, found in mine if mask[element]], axis=0)

    def backward(ends: Ends) -> Ends:
        moved = np.zeros(shape, ends.dtype)
        for element, found in mine:
            moved[element] = ends[found].max(initial=0)
        return moved

    return Link(operand, forward, backward, is_tried=True)
