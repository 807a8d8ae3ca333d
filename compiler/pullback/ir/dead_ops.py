"""Dead code elimination in one function: ops, carries of loops, results of branches.

It runs backward, by liveness: a value is live if a live op, or one with an effect, uses it, and the
carries of a loop are the least fixpoint of that. MLIR's own sweeps keep a loop carry that only
feeds itself. Differentiation makes many of those: the tangents of a loop whose primal part alone is
wanted.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pullback._jax import ir, sdy
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.purity import Purity, is_used
from pullback.ir.regions import (
    BRANCHES,
    MANUAL,
    blocks,
    captures,
    operations,
    remade,
    replace_terminator,
    terminator,
)
from pullback_runtime._erasure import erase, erase_arguments


def erase_dead_ops(block: Any, functions: dict[str, Any]) -> None:
    """Erase unused pure ops, and unused carries and results of control flow, last op first."""
    _Sweep(Purity(functions)).block(block)


class _Sweep:
    def __init__(self, purity: Purity) -> None:
        self.purity = purity

    def block(self, block: Any) -> None:
        for operation in reversed(operations(block)[:-1]):
            self._operation(operation)

    def _operation(self, operation: Any) -> None:
        used = [is_used(r) for r in operation.results]
        if not any(used) and self.purity.is_pure(operation):
            erase(operation)
        elif operation.name == "stablehlo.while":
            self._loop(operation, used)
        elif operation.name in BRANCHES:
            self._branches(operation, used)
        elif operation.name == MANUAL:
            self._manual(operation, used)

    def _loop(self, operation: Any, used: list[bool]) -> None:
        cond, body = blocks(operation)
        live = self._live_carries(cond, body, used)
        if not all(live):
            cond, body = blocks(_keep(operation, live, operands=live))
            _keep_carries(cond, body, live)
        self.block(body)

    def _live_carries(self, cond: Any, body: Any, used: list[bool]) -> list[bool]:
        """Return which carries are live: a used result, or the condition, depends on them.

        The least fixpoint over iterations: a carry is live too if the next value of a live one
        depends on it.
        """
        live = [u or is_used(a) for u, a in zip(used, cond.arguments, strict=True)]
        yields, arguments = list(terminator(body).operands), list(body.arguments)
        while True:
            needed = self._slice(body, [y for y, n in zip(yields, live, strict=True) if n])
            grown = [n or a in needed for n, a in zip(live, arguments, strict=True)]
            if grown == live:
                return live
            live = grown

    def _slice(self, block: Any, values: Sequence[Value]) -> set[Value]:
        """Return the backward slice: all values that `values`, or an effect, depend on."""
        needed = set(values)
        for view in reversed(list(block.operations)):
            operation = view.operation
            if operation.name == "stablehlo.return":
                continue
            if any(r in needed for r in operation.results) or not self.purity.is_pure(operation):
                needed.update(operation.operands)
                if len(operation.regions):
                    needed.update(captures(operation))
        return needed

    def _branches(self, operation: Any, used: list[bool]) -> None:
        if not all(used):
            operation = _keep(operation, used)
            for block in blocks(operation):
                _keep_returned(block, used)
        for block in blocks(operation):
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
    values = list(terminator(block).operands)
    replace_terminator(block, [v for v, k in zip(values, keep, strict=True) if k])


def _keep_carries(cond: Any, body: Any, keep: list[bool]) -> None:
    """Remove carries from a loop's blocks: their arguments, and what the body yields for them."""
    _keep_returned(body, keep)
    _erase_unused_users(body, keep)
    for block in (cond, body):
        _erase_arguments(block, keep)


def _erase_arguments(block: Any, keep: list[bool]) -> None:
    erase_arguments(block, [i for i, wanted in enumerate(keep) if not wanted])


def _erase_unused_users(block: Any, keep: list[bool]) -> None:
    """Erase all users of dead carries, which may feed one another, before their arguments go."""
    dead = {a for a, k in zip(block.arguments, keep, strict=True) if not k}
    doomed = []
    for view in block.operations:
        operation = view.operation
        values = [*operation.operands, *(captures(operation) if len(operation.regions) else ())]
        if any(v in dead for v in values):
            dead.update(operation.results)
            doomed.append(operation)
    for operation in reversed(doomed):
        erase(operation)
