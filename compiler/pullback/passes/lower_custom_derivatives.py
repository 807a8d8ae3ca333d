"""The pass `lower-custom-derivatives`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback._jax import ir, remat
from pullback.autodiff.checks import is_unknown, missing_map
from pullback.ir import ops
from pullback.ir.regions import replace_op
from pullback.ir.symbols import CALL, erase_unreachable
from pullback.passes.base import Pass, Rules
from pullback.passes.erase_dead import EraseDead
from pullback.passes.inline_calls import InlineCalls


def lower_call(call: ops.DerivativeCall) -> None:
    """Replace a derivative op by a call of its decomposition."""
    op = call.op
    results = call.results
    lowered = ir.Operation.create(
        CALL,
        results=[result.type for result in results],
        operands=call.operands,
        attributes={"callee": op.attributes["decomposition"]},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    replace_op(op, lowered.results)


@dataclass(frozen=True)
class LowerCustomDerivatives(Pass):
    """Turn the derivative ops into plain calls and erase the rules that nobody reaches.

    Before: `stablehlo.composite "pullback.custom_jvp_call" %x {decomposition = @f, …}`.
    After: `call @f(%x)`, and `@f.jvp` is gone. The module can not be differentiated afterwards
    with the rules that it had.
    """

    name: ClassVar[str] = "lower-custom-derivatives"

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Lower every derivative op, those in rule functions included.

        Raises: MissingRuleError if a value is needed of a map that is known by its transpose only.
        """
        unknown = False
        for call in ops.walk_calls(module):
            if is_unknown(call):
                unknown = True
            else:
                lower_call(call)
        for name, op in ops.named_composites(module):
            if name == remat.SAVED:
                replace_op(op, op.operands)
        if unknown:
            InlineCalls(checkpoint=True).run(module, rules)  # they may return unused values
            EraseDead().run(module, rules)
            for needed in ops.walk_calls(module):
                raise missing_map(needed)
        erase_unreachable(module)
