"""The pass `erase-dead`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback._jax import ir
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.mlir_passes import run_stock
from pullback.ir.symbols import erase_unreachable, functions
from pullback.passes.base import Pass, Rules

MLIRS_SWEEP = "func.func(trivial-dce)"
"""It knows nothing of composites and calls."""


@dataclass(frozen=True)
class EraseDead(Pass):
    """Erase pure ops whose results nobody uses, then functions that nobody reaches.

    Before: `%0 = stablehlo.composite "pullback.custom_jvp_call" %x …` without a use of `%0`.
    After: nothing. Derivative ops, calls, loops and branches are pure when all that they run is.
    Single results of loops and branches go as well when nothing needs them.
    """

    name: ClassVar[str] = "erase-dead"

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Run MLIR's sweep first, for it is cheap and leaves little to ours."""
        run_stock(module, MLIRS_SWEEP)
        table = functions(module)
        for function in table.values():
            for block in function.regions[0].blocks:
                erase_dead_ops(block, table)
        run_stock(module, MLIRS_SWEEP)
        erase_unreachable(module)
