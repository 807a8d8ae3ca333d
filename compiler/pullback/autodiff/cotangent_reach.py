"""Dataflow analysis: which active values get a cotangent, so that loops accumulate only these.

It runs backward over the ops that activity analysis found; the transfer function of an op is
`reached` of its rule, and without one, all of its active operands are reached.

A value that only decides which branch is taken gets none. It must not get a zero instead: the ops
that made it would multiply that by their slopes, and by an infinite one that gives NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.autodiff.activity import analyze, analyzed, numbered
from pullback.autodiff.checks import is_custom_vjp, may_run_a_rule
from pullback.autodiff.registry import Op
from pullback.autodiff.specialized import Record
from pullback.ir.build import Value
from pullback.ir.regions import terminator


def reached(records: Sequence[Record], seeds: Sequence[Value]) -> set[Value]:
    """Return the active values that a cotangent of `seeds` reaches."""
    found, left_out = set(seeds), set[Value]()
    for op in reversed(records):
        if isinstance(op, tuple):
            _, _, _, (result, *operands), places = op
            if result in found or result in left_out:
                reaching = found if result in found else left_out
                reaching.update(v for v, i in zip(operands, places, strict=True) if i is not None)
            continue
        results = [r in found for r in op.results]
        absent = [r in left_out for r in op.results]
        if any(results):
            flags = _flags(op, results)
        elif not any(absent):
            continue
        elif may_run_a_rule(op):
            flags = _flags(op, results if is_custom_vjp(op.operation) else absent)
        else:
            flags = [False] * len(op.active)
        found.update(v for v, flag in zip(op.operands, flags, strict=True) if flag)
        if not any(results) or (is_custom_vjp(op.operation) and not op.frame.linear):
            rest = zip(op.operands, op.active, flags, strict=True)
            left_out.update(v for v, active, flag in rest if active and not flag)
    return found


def _flags(op: Op, results: Sequence[bool]) -> Sequence[bool]:
    find = op.rule.reached
    return op.active if find is None else analyzed(op, find, tuple(results))


def each_its_own(op: Op, results: Sequence[bool]) -> list[bool]:
    """Return the operands that get cotangents if result i is operand i, perhaps rearranged."""
    return [has and active for has, active in zip(results, op.active, strict=True)]


def reached_in(op: Op, block: Any, active: Sequence[Value], results: Sequence[bool]) -> set[Value]:
    """Return the values of a block that get cotangents, if the flagged results of it have some.

    The block is one of the op, or of the function that it calls.
    """
    known = numbered(active)
    records = analyze(block, known, op.frame)
    ends = zip(terminator(block).operands, results, strict=True)
    return reached(records, [v for v, has in ends if has and v in known])
