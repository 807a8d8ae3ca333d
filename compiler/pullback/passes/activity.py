"""Activity: the values that depend on what is differentiated by, and the ops between them."""

from __future__ import annotations

from typing import Any

from pullback.dialect.build import Value, inexact
from pullback.passes.checks import check_body, check_known
from pullback.passes.regions import captures, operands_of, operations, results_of
from pullback.rules.registry import RULES, Op


def analyze(block: Any, active: set[Value], frame: Any) -> list[Op]:
    """Records of the ops of a block that carry derivatives; `active` grows by their results.

    An op with an active operand and no rule is an error: nothing is assumed inactive.
    """
    records, record, find = [], frame.record, RULES.get
    for operation in operations(block):
        rule = find(operation.name)
        if rule is None:
            check_known(operation, operation.name, active)
            continue
        operands = operands_of(operation)
        if rule.regions:
            operands += captures(operation)
        flags = [v in active for v in operands]
        if True not in flags:
            check_body(operation, rule, active)
            continue
        results = results_of(operation)
        op = record(operation, operands, results, flags, rule, frame)
        records.append(op)
        if rule.plain:
            active.update(results)
            continue
        if rule.variant is not None:
            op.rule = rule.variant(op)
        active.update(active_results(op))
    return records


def active_results(op: Op) -> list[Value]:
    """The results of an op with an active operand that depend on it."""
    if op.rule.activity is not None:
        flags = op.rule.activity(op)
        return [r for r, active in zip(op.results, flags, strict=True) if active]
    if op.rule.keeps_type:
        return op.results
    return [r for r in op.results if inexact(r.type)]
