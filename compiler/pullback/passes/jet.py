"""Define the pass `jet`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.autodiff.state import Differentiation
from pullback.autodiff.taylor import taylor_in_place
from pullback.errors import ArgumentMismatchError
from pullback.passes.differentiating_pass import Derivative


@dataclass(frozen=True)
class Jet(Derivative):
    """Follow `entry` along a curve, to an order: Taylor mode.

    Before: `f(x) -> y`. After: `f(x, x1, …, xK) -> (y, y1, …, yK)`, where xk and yk are the k-th
    derivatives of x and y by the parameter of the curve.

    Attributes:
      order: K, of the last derivative.
      entry: the function to differentiate, in place.
      wrt: positions of the arguments that have terms; all inexact ones if not given.
      factorial_scaled: false for terms that are coefficients: derivatives over k!.
    """

    name: ClassVar[str] = "jet"
    order: int
    entry: str = "main"
    wrt: tuple[int, ...] | None = None
    outs = None
    factorial_scaled: bool = True

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Run Taylor mode; every inexact result gets all terms."""
        if self.order < 1:
            raise ArgumentMismatchError(
                f"a Taylor series of order {self.order}", do="give an order of 1 or more"
            )
        diff.in_place = self.entry
        taylor_in_place(diff, self.entry, mask, self.order, self.factorial_scaled)
