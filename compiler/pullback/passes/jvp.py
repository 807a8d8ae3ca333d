"""The pass `jvp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback import _jax
from pullback._jax import ir
from pullback.passes.base import Pass, Rules
from pullback.passes.differentiation import Differentiation
from pullback.passes.forward import jvp_in_place
from pullback.passes.signatures import ct_mask_of, wrt_mask
from pullback.passes.symbols import leave_copy


@dataclass(frozen=True)
class JVP(Pass):
    """Forward mode: pair every value of `entry` with its tangent.

    Before: `f(x) -> y`. After: `f(x, dx) -> (y, dy)`.

    Attributes:
      entry: the function to differentiate, in place.
      wrt: positions of the arguments that have a tangent; all inexact ones if not given.
    """

    name: ClassVar[str] = "jvp"
    entry: str = "main"
    wrt: tuple[int, ...] | None = None

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Differentiates `entry` in place; raises MissingRuleError, NotDifferentiableError."""
        leave_copy(module, self.entry)
        with _jax.working_in(module), Differentiation(module, rules) as diff:
            mask = wrt_mask(diff, self.entry, self.wrt)
            ct_mask_of(diff, self.entry, None)  # raises for results without place for a tangent
            diff.in_place = self.entry
            jvp_in_place(diff, self.entry, mask, instantiate=True)
