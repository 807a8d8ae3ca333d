"""The pass `stage-rules`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback._jax import ir
from pullback.passes.base import Pass, Rules


@dataclass(frozen=True)
class StageRules(Pass):
    """Replace every `rule` key by the functions of the rule.

    Before: `composite_attributes = {rule = "softplus#0"}`.
    After: `composite_attributes = {jvp = @softplus.jvp}`, and `@softplus.jvp` in the module.
    A module without a rule table must have no `rule` left.
    """

    name: ClassVar[str] = "stage-rules"

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Stage every rule of the rule table, to a fixpoint."""
        rules.stage_all(module)
