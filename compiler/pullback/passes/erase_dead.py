"""The pass `erase-dead`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pullback import _jax
from pullback._jax import ir
from pullback.dialect import ops
from pullback.passes.base import Pass, Rules
from pullback.passes.dead_results import drop_dead_results
from pullback.passes.symbols import CALL, callee, erase_unreachable, functions, is_declaration

REGION_OPS = frozenset({"stablehlo.while", "stablehlo.case", "stablehlo.if"})
CALL_LIKE = frozenset({CALL, ops.COMPOSITE})

# What another device, the host or the outside world can notice.
IMPURE = frozenset(
    {
        "stablehlo.all_gather",
        "stablehlo.all_reduce",
        "stablehlo.all_to_all",
        "stablehlo.collective_broadcast",
        "stablehlo.collective_permute",
        "stablehlo.collective_reduce",
        "stablehlo.cross-replica-sum",
        "stablehlo.infeed",
        "stablehlo.outfeed",
        "stablehlo.recv",
        "stablehlo.reduce_scatter",
        "stablehlo.rng",
        "stablehlo.send",
    }
)


@dataclass
class Purity:
    """Whether ops can be erased when nobody uses their results; functions are looked up once."""

    table: dict[str, ir.Operation]
    known: dict[str, bool] = field(default_factory=dict)

    def is_pure(self, root: ir.Operation) -> bool:
        """Whether nothing at or below `root` has an effect besides its results."""
        pure = True

        def check(op: ir.Operation) -> ir.WalkResult:
            nonlocal pure
            pure = self._is_pure_alone(op)
            return ir.WalkResult.ADVANCE if pure else ir.WalkResult.INTERRUPT

        root.walk(check, ir.WalkOrder.PRE_ORDER)
        return pure

    def _is_pure_alone(self, op: ir.Operation) -> bool:
        name = op.name
        if name == CALL:
            return self._is_pure_function(callee(op))
        if name == ops.COMPOSITE:
            return self._is_pure_function(ops.DerivativeCall(op).decomposition)
        if name == "stablehlo.custom_call":
            return not _has_side_effect(op)
        if name in IMPURE:
            return False
        return name.startswith(("stablehlo.", "chlo.")) or name in ("func.func", "func.return")

    def _is_pure_function(self, name: str) -> bool:
        """A function in a cycle counts as impure, for it may not end."""
        if name not in self.known:
            self.known[name] = False
            function = self.table.get(name)
            if function is not None and not is_declaration(function):
                self.known[name] = self.is_pure(function)
        return self.known[name]


def _has_side_effect(op: ir.Operation) -> bool:
    attributes = op.attributes
    return "has_side_effect" in attributes and ir.BoolAttr(attributes["has_side_effect"]).value


def _is_unused(op: ir.Operation) -> bool:
    return all(next(iter(result.uses), None) is None for result in op.results)


def _erase_dead_calls(module: ir.Module) -> int:
    """Erases unused calls, composites, loops and branches, and the unused results of the latter.

    Users come before what they use. Returns how many ops changed.
    """
    candidates: list[ir.Operation] = []

    def collect(op: ir.Operation) -> ir.WalkResult:
        if op.name in CALL_LIKE or op.name in REGION_OPS:
            candidates.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect, ir.WalkOrder.PRE_ORDER)
    purity = Purity(functions(module))
    changes = 0
    for op in reversed(candidates):  # also: ops in a region before the op that holds it
        if _is_unused(op):
            if purity.is_pure(op):
                op.erase()
                changes += 1
        elif op.name in REGION_OPS and drop_dead_results(op, purity.is_pure):
            changes += 1
    return changes


def _erase_trivially_dead(module: ir.Module) -> None:
    """MLIR's own sweep, which knows nothing of composites and calls."""
    manager = _jax.PassManager.parse(
        "builtin.module(func.func(trivial-dce))", context=module.context
    )
    manager.enable_verifier(False)
    manager.run(module.operation)


@dataclass(frozen=True)
class EraseDead(Pass):
    """Erase pure ops whose results nobody uses, then functions that nobody reaches.

    Before: `%0 = stablehlo.composite "pullback.custom_jvp_call" %x …` without a use of `%0`.
    After: nothing. Derivative ops, calls, loops and branches are pure when all that they run is.
    Single results of loops and branches go as well when nothing needs them.
    """

    name: ClassVar[str] = "erase-dead"

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Sweeps until nothing changes: a dead call can be the last user of another one."""
        _erase_trivially_dead(module)
        while _erase_dead_calls(module):
            _erase_trivially_dead(module)
        erase_unreachable(module)
