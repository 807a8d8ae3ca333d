"""Count what is in a module: functions, ops, rules, constants, and the cost of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pullback._jax import ir
from pullback.ir import build, costs, ops, symbols

_NOT_OPS = frozenset({"builtin.module", "func.func"})


def statistics(module: ir.Module) -> dict[str, Any]:
    """Return counts, as values of JSON.

    The flops and the bytes that ops read and write are those of a run of `@main`, before XLA fuses
    anything; a loop whose trip count is unknown counts once.
    """
    names: Counter[str] = Counter()
    constants = 0

    def count(op: ir.Operation) -> ir.WalkResult:
        nonlocal constants
        if op.name not in _NOT_OPS:
            names[op.name] += 1
        if op.name == "stablehlo.constant":
            constants += build.size_in_bytes(op.results[0].type)
        return ir.WalkResult.ADVANCE

    module.operation.walk(count)
    runs = list(costs.runs(module))
    return {
        "functions": len(symbols.functions(module)),
        "ops": names.total(),
        "calls with rules": len(list(ops.walk_calls(module))),
        "bytes of constants": constants,
        "flops of a run": sum(times * costs.flops(op) for op, times in runs),
        "bytes moved by a run": sum(times * costs.bytes_moved(op) for op, times in runs),
        "ops by name": dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))),
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the text of `statistics`."""
    for label, value in found.items():
        if isinstance(value, dict):
            yield f"{label}:"
            yield from (f"  {count:10,} {name}" for name, count in value.items())
        else:
            yield f"{label:22}{value:,}"
