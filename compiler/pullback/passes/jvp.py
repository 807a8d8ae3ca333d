"""The pass `jvp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.passes.derivative import Derivative
from pullback.passes.differentiation import Differentiation
from pullback.passes.forward import jvp_in_place


@dataclass(frozen=True)
class JVP(Derivative):
    """Forward mode: pair every value of `entry` with its tangent.

    Before: `f(x) -> y`. After: `f(x, dx) -> (y, dy)`.

    Attributes:
      entry: the function to differentiate, in place.
      wrt: positions of the arguments that have a tangent; all inexact ones if not given.
    """

    name: ClassVar[str] = "jvp"
    entry: str = "main"
    wrt: tuple[int, ...] | None = None
    outs = None

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Every inexact result has a tangent."""
        diff.in_place = self.entry
        jvp_in_place(diff, self.entry, mask, instantiate=True)
