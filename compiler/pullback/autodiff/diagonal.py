"""Diagonal maps: linear functions of which each element depends on the same element of the input.

The transpose of an elementwise op is one. A mask of zeros commutes with such a map, so it may be
applied after it instead of before: see `autodiff/pending.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.autodiff.registry import RULES, apart, jointly
from pullback.autodiff.state import Differentiation
from pullback.autodiff.zeros import adds_nothing
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.masks import mask_of, masked
from pullback.ir.regions import captures, operations, terminator
from pullback.ir.symbols import called


def diagonal_results(diff: Differentiation, name: str, mask: str) -> list[bool]:
    """Return which results of @name are diagonal maps of its masked arguments, jointly.

    A forward dataflow analysis over the ops of the function, with `_results_of` as the transfer
    function: the results of an unknown op are not diagonal.
    """
    block, found = diff.block(name), _found(diff, name, mask)
    shapes = {build.shape(v) for v in masked(block.arguments, mask)}
    return [
        build.shape(v) in shapes and adds_nothing(v, diff.functions) if moves is None else moves
        for v, moves in zip(terminator(block).operands, found, strict=True)
    ]


def _found(diff: Differentiation, name: str, mask: str) -> list[bool | None]:
    """Return which results are diagonal maps; None for what does not depend on the arguments."""
    found: list[bool | None] = diff.cached(
        ("diagonal", name, mask), lambda: _diagonal_results(diff, name, mask)
    )
    return found


def _diagonal_results(diff: Differentiation, name: str, mask: str) -> list[bool | None]:
    block = diff.block(name)
    arguments = masked(block.arguments, mask)
    shapes = {build.shape(v) for v in arguments}
    diagonal: set[Value] = set(arguments) if len(shapes) == 1 else set()
    other = set(arguments) - diagonal
    *steps, end = operations(block)
    for operation in steps:
        flags = [v in diagonal for v in operation.operands]
        inside = captures(operation) if len(operation.regions) else []
        is_used = any(v in diagonal or v in other for v in (*operation.operands, *inside))
        if is_used and not len(operation.results):
            return [False] * len(end.operands)  # such as a print, which shows the value
        if any(v in other for v in operation.operands) or (is_used and True not in flags):
            other.update(operation.results)
        elif is_used:
            found = _results_of(diff, operation, flags)
            for result, moves in zip(operation.results, found, strict=True):
                if moves is not None:
                    (diagonal if moves else other).add(result)
    return [True if v in diagonal else False if v in other else None for v in end.operands]


def _results_of(diff: Differentiation, operation: Any, flags: list[bool]) -> list[bool | None]:
    """Return which results are diagonal maps of the operands flagged; None for no map of them."""
    callee, count = called(operation), len(operation.results)
    if callee is not None:
        return _found(diff, callee, mask_of(flags))
    rule = RULES.get(operation.name)
    if rule is None or not rule.elementwise or not rule.linear(flags):
        return [False] * count
    if rule.linear is apart:
        return [flag or None for flag in flags]
    operands = list(operation.operands)
    fixed = [v for v, flag in zip(operands, flags, strict=True) if not flag]
    moving = [v for v, flag in zip(operands, flags, strict=True) if flag]
    is_affine = rule.linear is jointly and not all(_adds_nothing(v, diff) for v in fixed)
    return [not is_affine and have_one_shape([*moving, *operation.results])] * count


def _adds_nothing(v: Value, diff: Differentiation) -> bool:
    """Return True if an operand adds no term to a result: it is not inexact, or surely zero."""
    return not build.inexact(v.type) or adds_nothing(v, diff.functions)


def have_one_shape(values: Sequence[Value]) -> bool:
    first, *rest = map(build.shape, values)
    return all(shape == first for shape in rest)
