"""Estimate the floating-point operations, the bytes and the runs of single ops.

XLA counts for an executable as a whole, after fusion; these are of the module as it is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pullback._jax import ir, stablehlo
from pullback.ir import build
from pullback.ir.dataflow import CONTROL
from pullback.ir.regions import WHILE, blocks, operations
from pullback.ir.symbols import FUNC, called, functions, is_declaration, is_public
from pullback.ir.traits import CHOOSES
from pullback.ir.while_loops import read_loop

_MOVE_NOTHING = CONTROL | {FUNC, "builtin.module"}
"""Ops whose time is that of the ops inside of them."""


def flops(operation: Any) -> int:
    """Return how many additions, multiplications and the like one run of an op takes.

    An elementwise op takes one for each float, a contraction two for each product that it adds
    up, a reduction one for each element that it takes beyond those that it gives, whatever its
    region computes; ops that only move numbers, and integers, take none.
    """
    dialect, _, name = operation.name.partition(".")
    if dialect not in ("stablehlo", "chlo") or operation.name in CHOOSES:
        return 0
    if not len(operation.results):
        return 0
    result = operation.results[0]
    if not build.inexact(result.type):
        return 0
    count = _elements(result)
    if name == "dot_general":
        return 2 * count * _contracted(operation)
    if name == "convolution":
        return 2 * count * _window(operation)
    if name in ("reduce", "select_and_scatter"):
        return max(_elements(operation.operands[0]) - count, 0)
    if name == "reduce_window":
        return count * math.prod(build.integers(operation.attributes["window_dimensions"]))
    return count


def bytes_moved(operation: Any) -> int:
    """Return the bytes of an op's operands and results; a constant counts its result.

    Nothing for calls, loops and branches, whose ops count for themselves, and for terminators.
    """
    name = operation.name
    if name in _MOVE_NOTHING or name.endswith(".return"):
        return 0
    return sum(map(_size, (*operation.operands, *operation.results)))


def runs(module: ir.Module) -> Iterator[tuple[Any, int]]:
    """Yield every op below the functions, with how often a run of `@main` runs it.

    A loop whose trip count is unknown counts as one iteration, every branch of a choice counts, and
    a function that `@main` does not reach, such as a rule, runs as often as its body: once or more.
    """
    table = functions(module)
    times = dict.fromkeys(table, 0)
    for name in _callers_first(table):
        reached = times[name] or int(is_public(table[name]))
        for operation, count in _in_function(table[name]):
            yield operation, reached * count
            target = called(operation)
            if target in times:
                times[target] += reached * count


def _callers_first(table: dict[str, Any]) -> list[str]:
    """Return the functions in an order in which each comes before those that it calls."""
    done: dict[str, None] = {}
    for root in table:
        waiting = [(root, False)]
        while waiting:
            name, is_left = waiting.pop()
            if is_left:
                done.setdefault(name)
            elif name not in done:
                waiting.append((name, True))
                targets = {called(operation) for operation, _ in _in_function(table[name])}
                waiting += [(t, False) for t in targets if t in table and t not in done]
    return list(reversed(done))


def _in_function(function: Any) -> Iterator[tuple[Any, int]]:
    if not is_declaration(function):
        yield from _in_block(blocks(function)[0], 1)


def _in_block(block: Any, count: int) -> Iterator[tuple[Any, int]]:
    for operation in operations(block):
        yield operation, count
        inner = count * runs_inside(operation)
        for each in blocks(operation):
            yield from _in_block(each, inner)


def runs_inside(operation: Any) -> int:
    """Return how often the blocks of an op run when it does; 1 for an unknown trip count.

    The region of an op without control flow says what it does with each element: 0.
    """
    if operation.name == WHILE:
        return read_loop(operation).slots or 1
    return int(operation.name in _MOVE_NOTHING)


def _elements(value: Any) -> int:
    return math.prod(abs(size) for size in build.shape(value))


def _size(value: Any) -> int:
    """Return the bytes of a tensor, a dynamic dimension counted as one; 0 for other values."""
    return build.size_in_bytes(value.type) if build.info(value.type).bits else 0


def _contracted(operation: Any) -> int:
    numbers = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    shape = build.shape(operation.operands[0])
    return math.prod(shape[i] for i in numbers.lhs_contracting_dimensions)


def _window(operation: Any) -> int:
    """Return how many products of a convolution make one element of its result."""
    numbers = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    shape = build.shape(operation.operands[1])
    return math.prod(shape) // max(shape[numbers.kernel_output_feature_dimension], 1)
