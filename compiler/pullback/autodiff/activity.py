"""Activity analysis: the values that depend on what is differentiated by, and their ops.

A forward dataflow analysis: a value is active or not, a lattice of two points. The transfer
function of an op is `activity` of its rule; without one, all results that can have tangents are
active.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from pullback.autodiff.checks import check_body, check_known
from pullback.autodiff.registry import RULES, Mask, Op
from pullback.autodiff.specialized import Kinds, Reader, Record, reader
from pullback.ir.build import Value, inexact
from pullback.ir.regions import captured_elements, operands_of, operations, results_of

Active = dict[Value, int]
"""Active values, numbered as they come."""


def numbered(values: Iterable[Value]) -> Active:
    return dict(zip(dict.fromkeys(values), itertools.count()))


def analyze(block: Any, active: Active, frame: Any, kinds: Kinds | None = None) -> list[Record]:
    """Return records of the ops of a block with an active operand; add their results to `active`.

    With `kinds`, one for each active value, the record of an op whose rule can be specialized is a
    `Reading`. An op with an active operand and no rule is an error: nothing is assumed inactive.
    """
    records: list[Record] = []
    append = records.append
    record, find = frame.record, RULES.get
    read: Reader | None = None if kinds is None else reader(active, kinds, frame, False)
    for operation in operations(block):
        rule = find(operation.name)
        if rule is None:
            check_known(operation, operation.name, active)
            continue
        if rule.runs_once and read is not None:
            reading = read(operation, rule)
            if reading:
                append(reading)
                continue
            if reading is not None:
                continue
        operands = operands_of(operation)
        if rule.regions:
            operands += captured_elements(operation)
        flags = [v in active for v in operands]
        if True not in flags:
            check_body(operation, rule, active)
            continue
        results = results_of(operation)
        op = record(operation, operands, results, flags, rule, frame)
        append(op)
        if not rule.plain:
            if rule.variant is not None:
                op.rule = rule.variant(op)
            results = active_results(op)
        for r in results:
            active[r] = len(active)
        if kinds is not None:
            kinds += [None] * len(results)
    return records


def active_results(op: Op) -> list[Value]:
    """Return the active results of an op that has an active operand."""
    if op.rule.activity is not None:
        flags = analyzed(op, op.rule.activity)
        return [r for r, active in zip(op.results, flags, strict=True) if active]
    if op.rule.keeps_type:
        return op.results
    return [r for r in op.results if inexact(r.type)]


def analyzed(op: Op, analysis: Callable[..., Mask], *more: Hashable) -> Mask:
    """Return what `activity` or `reached` of a rule says of an op; memoized if the op has regions.

    The transfer function of an op runs those of the ops nested in it, more than once where it looks
    for a fixpoint: without the memo, time would be exponential in the depth of nesting.
    """
    if not op.rule.regions:
        return analysis(op, *more)

    def find() -> tuple[Mask, Any]:
        return analysis(op, *more), op.info

    key = (analysis, op.operation, *op.active, *more)
    flags, op.info = op.frame.diff.while_analyzing(key, find)
    return flags
