"""The pass `simplify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pullback._jax import ir
from pullback.ir import build
from pullback.ir.mlir_passes import run_stock
from pullback.ir.regions import replace_op
from pullback.ir.symbols import functions
from pullback.passes.base import Pass, Rules
from pullback.passes.rewrites.max_pool import POOL_BY_ARITHMETIC
from pullback.passes.rewrites.softplus import SHARE_EXPONENTIAL
from pullback_runtime._jax import operations_where

REWRITES = {each.op: each for each in (SHARE_EXPONENTIAL, POOL_BY_ARITHMETIC)}


def simplifies(module: ir.Module) -> bool:
    """Return True if a rewrite may apply to an op of the module."""
    return bool(operations_where(module, _applies))


def _applies(op: Any) -> bool:
    rewrite = REWRITES.get(op.name)
    return rewrite is not None and rewrite.applies(op)


@dataclass(frozen=True)
class Simplify(Pass):
    """Replace ops by cheaper forms that XLA does not find itself.

    Before: `exp(x - log(1 + exp(x)))`, which JAX's rule of softplus computes. After: `1 / (1 + e)`
    or `e / (1 + e)`, where softplus has computed `e = exp(-|x|)`; and max pooling is differentiated
    by arithmetic. Equal ops are merged. Calls that have rules stay calls.
    """

    name: ClassVar[str] = "simplify"

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Merge equal ops, then apply each rewrite once: none makes work for another."""
        run_stock(module, "cse")
        if _rewrite(module):
            run_stock(module, "func.func(trivial-dce)")


def _rewrite(module: ir.Module) -> bool:
    """Apply the rewrites; return True if one may have applied."""
    table = functions(module)
    found = operations_where(module, _applies)
    for op in found:
        with build.inserting(ir.InsertionPoint(op), op.location):
            value = REWRITES[op.name].emit(op, table)
        if value is not None:
            replace_op(op, [value])
    return bool(found)
