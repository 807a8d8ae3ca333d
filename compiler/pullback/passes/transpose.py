"""The pass `transpose`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.autodiff.functions import transpose
from pullback.autodiff.state import Differentiation
from pullback.passes.differentiating_pass import Derivative


@dataclass(frozen=True)
class Transpose(Derivative):
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

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Replace the function by its transpose."""
        diff.take_place(transpose(diff, self.entry, mask, ct_mask), self.entry)
