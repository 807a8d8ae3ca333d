"""The pass `jvp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.autodiff.forward import jvp_in_place
from pullback.autodiff.state import Differentiation
from pullback.passes.differentiating_pass import Derivative


@dataclass(frozen=True)
class JVP(Derivative):
    """Forward mode: pair every value of `entry` with its tangent.

    Before: `f(x) -> y`. After: `f(x, dx) -> (y, dy)`.

    Attributes:
      entry: the function to differentiate, in place.
      wrt: positions of the arguments that have a tangent; all inexact ones if not given.
      through: what custom_vjp calls are differentiated through: their rules, which transposes a
        backward rule without a jvp rule beside it; or the code of the functions with these names,
        separated by commas; or with "function" that of all functions without a linear rule.
    """

    name: ClassVar[str] = "jvp"
    entry: str = "main"
    wrt: tuple[int, ...] | None = None
    outs = None
    through: str = "rules"

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Run forward mode; every inexact result gets a tangent."""
        diff.in_place = self.entry
        diff.through = self.through
        jvp_in_place(diff, self.entry, mask, instantiate=True)
