"""Dead code elimination in one function: ops, carries of loops, results of branches.

It runs backward, by liveness. MLIR's own sweeps keep a loop carry that only feeds itself.
Differentiation makes many of those: the tangents of a loop whose primal part alone is wanted.
"""

from __future__ import annotations

import itertools
from typing import Any

from pullback._jax import ir, sdy
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.dataflow import BackwardAnalysis, uses
from pullback.ir.purity import Purity, is_used
from pullback.ir.regions import (
    BRANCHES,
    MANUAL,
    WHILE,
    blocks,
    operations,
    remade,
    replace_terminator,
    terminator,
)
from pullback_runtime.ir._erasure import erase, erase_arguments


def erase_dead_ops(block: Any, functions: dict[str, Any]) -> None:
    """Erase unused pure ops, and unused carries and results of control flow, last op first."""
    _Sweep(functions).block(block)


class Liveness(BackwardAnalysis[bool]):
    """Find live values: those that a live op, or one with an effect, uses.

    A call uses all of its operands.

    Attributes:
      carries: which carries of the loops analyzed so far are live, by the body of the loop.
    """

    bottom = False

    def __init__(self, functions: dict[str, Any]) -> None:
        super().__init__(functions)
        self.purity = Purity(functions)
        self.carries: dict[Any, list[bool]] = {}

    def join(self, x: bool, y: bool) -> bool:
        return x or y

    def body(self, call: Any) -> Any:
        return None

    def decides(self, operation: Any, given: list[bool]) -> bool:
        """Return True if an op is live: a result is, or the op has an effect."""
        return any(given) or not self.purity.is_pure(operation)

    def transfer(self, operation: Any, given: list[bool], facts: dict[Value, bool]) -> list[bool]:
        return [self.decides(operation, given)] * len(uses(operation))

    def loop(self, loop: Any, carries: list[bool], facts: dict[Value, bool]) -> list[bool]:
        found = self.carries[blocks(loop)[1]] = super().loop(loop, carries, facts)
        return found


class _Sweep:
    def __init__(self, functions: dict[str, Any]) -> None:
        self.liveness = Liveness(functions)

    def block(self, block: Any) -> None:
        for operation in reversed(operations(block)[:-1]):
            self._operation(operation)

    def _operation(self, operation: Any) -> None:
        used = [is_used(r) for r in operation.results]
        if not self.liveness.decides(operation, used):
            erase(operation)
        elif operation.name == WHILE:
            self._loop(operation, used)
        elif operation.name in BRANCHES:
            self._branches(operation, used)
        elif operation.name == MANUAL:
            self._manual(operation, used)

    def _loop(self, operation: Any, used: list[bool]) -> None:
        cond, body = blocks(operation)
        if body not in self.liveness.carries:  # no loop around it was analyzed
            self.liveness.loop(operation, used, {})
        live = self.liveness.carries[body]
        if not all(live):
            _keep(operation, live, operands=live)
        _keep_returned(body, live)
        for block in (cond, body):
            self.block(block)
            _erase_arguments(block, live)

    def _branches(self, operation: Any, used: list[bool]) -> None:
        if not all(used):
            operation = _keep(operation, used)
        for block in blocks(operation):
            _keep_returned(block, used)
            self.block(block)

    def _manual(self, operation: Any, used: list[bool]) -> None:
        (block,) = blocks(operation)
        _keep_returned(block, used)
        self.block(block)
        needed = list(map(is_used, block.arguments))
        if all(used) and all(needed):
            return
        new = _keep(operation, used, needed)
        new.attributes["in_shardings"] = _chosen(new.attributes["in_shardings"], needed)
        new.attributes["out_shardings"] = _chosen(new.attributes["out_shardings"], used)
        _erase_arguments(block, needed)


def _chosen(shardings: Any, keep: list[bool]) -> Any:
    every = sdy.TensorShardingPerValueAttr(shardings).shardings
    return sdy.TensorShardingPerValueAttr.get([s for s, k in zip(every, keep, strict=True) if k])


def _keep(operation: Any, keep: list[bool], operands: list[bool] | None = None) -> Any:
    """Replace an op by one with fewer results (and operands), which takes over its regions."""
    kept = [r for r, k in zip(operation.results, keep, strict=True) if k]
    given = None if operands is None else list(itertools.compress(operation.operands, operands))
    with build.inserting(ir.InsertionPoint(operation), operation.location):
        new = remade(operation, [r.type for r in kept], given)
    for old, result in zip(kept, new.results, strict=True):
        old.replace_all_uses_with(result)
    erase(operation)
    return new


def _keep_returned(block: Any, keep: list[bool]) -> None:
    if not all(keep):
        values = list(terminator(block).operands)
        replace_terminator(block, list(itertools.compress(values, keep)))


def _erase_arguments(block: Any, keep: list[bool]) -> None:
    erase_arguments(block, [i for i, wanted in enumerate(keep) if not wanted])
