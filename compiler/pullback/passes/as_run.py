"""Make the module that runs: simplified, and with its effects in order."""

from __future__ import annotations

from pullback._jax import ir
from pullback.autodiff.checks import is_unknown
from pullback.ir import ops
from pullback.ir.modules import clone
from pullback.passes.manager import run_pipeline
from pullback.passes.order_effects import has_order
from pullback.passes.simplify import simplifies


def as_run(module: ir.Module, simplify: bool = True) -> ir.Module:
    """Return the module as it runs: simplified, with a token from each ordered effect to the next.

    The module itself, if there is nothing to simplify, it has no ordered effects, and no map that
    is known by its transpose only.

    Raises: MissingRuleError if it needs a value of a map that is known by its transpose only.
    """
    simplify = simplify and simplifies(module)
    if not (simplify or has_order(module) or any(map(is_unknown, ops.walk_calls(module)))):
        return module
    copy = clone(module)
    run_pipeline(copy, "lower-custom-derivatives,order-effects" + ",simplify,symbol-dce" * simplify)
    return copy
