"""The pass `transpose`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback import _jax
from pullback._jax import ir
from pullback.passes.backward import transpose
from pullback.passes.base import Pass, Rules
from pullback.passes.differentiation import Differentiation
from pullback.passes.signatures import ct_mask_of, wrt_mask
from pullback.passes.symbols import leave_copy


@dataclass(frozen=True)
class Transpose(Pass):
    """Transpose a function that is linear in its `wrt` arguments.

    Before: `f(r, x) -> y`, linear in x. After: `f(r, ct_y) -> ct_x`.

    Attributes:
      entry: the function to transpose, in place.
      wrt: positions of the linear arguments; all inexact ones if not given.
      outs: positions of the results that receive a cotangent; all inexact ones if not given.
    """

    name: ClassVar[str] = "transpose"
    entry: str = "main"
    wrt: tuple[int, ...] | None = None
    outs: tuple[int, ...] | None = None

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Transposes `entry` in place; raises NotLinearError."""
        leave_copy(module, self.entry)
        with _jax.working_in(module), Differentiation(module, rules) as diff:
            mask = wrt_mask(diff, self.entry, self.wrt)
            name = transpose(diff, self.entry, mask, ct_mask_of(diff, self.entry, self.outs))
            diff.take_place(name, self.entry)
