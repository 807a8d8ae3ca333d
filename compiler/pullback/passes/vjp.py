"""The pass `vjp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.autodiff.functions import split_entry, vjp_in_place
from pullback.autodiff.state import Differentiation
from pullback.errors import NotDifferentiableError
from pullback.ir.locations import user_line
from pullback.passes.differentiating_pass import Derivative


@dataclass(frozen=True)
class VJP(Derivative):
    """Reverse mode: pull cotangents of the results of `entry` back to its arguments.

    Before: `f(x) -> y`. After: `f(x, ct_y) -> (y, ct_x)`.
    With `split`: `f(x) -> (y, residuals…)` and `@f.bwd(residuals…, ct_y) -> ct_x`.

    Attributes:
      entry: the function to differentiate, in place.
      wrt: positions of the arguments to give cotangents for; all inexact ones if not given.
      split: forward and backward as two functions.
      unit_cotangent: the cotangent of the single result is 1 instead of an argument; 1 in each
        element, which gives the gradients of a batch of scalars.
      outs: positions of the results that receive a cotangent; all inexact ones if not given.
      store: all that loops and called functions need is stored, and nothing is recomputed; by
        default, a minimum cut is stored.
    """

    name: ClassVar[str] = "vjp"
    entry: str = "main"
    wrt: tuple[int, ...] | None = None
    split: bool = False
    unit_cotangent: bool = False
    outs: tuple[int, ...] | None = None
    store: bool = False

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Run reverse mode in one function or, with `split`, in two."""
        if self.unit_cotangent:
            self._check_unit(diff, ct_mask)
        diff.stores_all = self.store
        if self.split:
            split_entry(diff, self.entry, mask, ct_mask)
        else:
            vjp_in_place(diff, self.entry, mask, ct_mask, self.unit_cotangent)

    def _check_unit(self, diff: Differentiation, ct_mask: str) -> None:
        """Raise NotDifferentiableError unless there is exactly one cotangent to leave out."""
        count = ct_mask.count("1")
        if count != 1 or self.split:
            what = "split=true" if self.split else f"{count} results"
            raise NotDifferentiableError(
                f"unit-cotangent is for one result of one function, not for {what}",
                where=user_line(diff.function(self.entry).location),
                do="name the result with outs=, or pass cotangents",
            )
