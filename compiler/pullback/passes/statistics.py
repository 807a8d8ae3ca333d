"""Count what passes do: how many ops of each kind they add and take away."""

from __future__ import annotations

import sys
from collections import Counter

from pullback._jax import ir

_TITLE = "... Pass statistics report ..."
_RULE = "===" + "-" * 73 + "==="


class Statistics:
    """The ops of a module before the first of some passes, and after each.

    The statistics that the passes of MLIR keep of themselves are not in a release build, as jaxlib
    is.
    """

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._before = _ops_by_name(module)
        self._lines: list[str] = []

    def count(self, name: str) -> None:
        """Count again, after the pass of this name."""
        before, after = self._before, _ops_by_name(self._module)
        self._before = after
        changes = {each: after[each] - before[each] for each in sorted({*before, *after})}
        self._lines += [name, f"  (S) {before.total():6d} ops before, {after.total()} after"]
        self._lines += [f"  (S) {n:+6d} {each}" for each, n in changes.items() if n]

    def report(self) -> None:
        """Print the counts to standard error, in the form of MLIR's report."""
        lines = [_RULE, f"{_TITLE:^79}".rstrip(), _RULE, *self._lines, ""]
        sys.stderr.write("\n".join(lines))


def _ops_by_name(module: ir.Module) -> Counter[str]:
    found: Counter[str] = Counter()

    def count(op: ir.Operation) -> ir.WalkResult:
        found[op.name] += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(count)
    del found["builtin.module"]
    return found
