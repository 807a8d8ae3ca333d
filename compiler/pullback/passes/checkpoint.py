"""The pass `checkpoint`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.schedules import schedules
from pullback.autodiff.specialized import kinds_in
from pullback.autodiff.state import Differentiation
from pullback.errors import ArgumentMismatchError
from pullback.ir.masks import mask_of
from pullback.ir.symbols import leave_copy
from pullback.passes.base import Pass, Rules
from pullback.passes.differentiating_pass import mask_at


@dataclass(frozen=True)
class Checkpoint(Pass):
    """Put checkpoints into `entry`, so that reverse mode stores less and computes more again.

    Before: a loop of 100 iterations. After: one of 10, each of which calls a function marked
    `pullback.checkpoint`, with a loop of 10 iterations. Straight-line code becomes calls of such
    functions, one after the other. Of the schedules that are estimated to store at most `bytes` at
    a time, the one that computes the fewest operations again is taken; if there is none, the one
    that stores least. Functions that are called are not changed: `inline-calls` brings them in.

    Attributes:
      entry: the function to change, in place.
      bytes: how many bytes its reverse mode may store at a time, as estimated.
      wrt: positions of the arguments that it will be differentiated by; all inexact ones if not
        given.
    """

    name: ClassVar[str] = "checkpoint"
    entry: str = "main"
    bytes: int = 0
    wrt: tuple[int, ...] | None = None

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Change the function by the edits of one schedule; raise ArgumentMismatchError."""
        if self.bytes < 0:
            raise ArgumentMismatchError(
                f"the pass `checkpoint` got bytes={self.bytes}",
                do="give it how many bytes reverse mode may store at a time, 0 or more",
            )
        leave_copy(module, self.entry)
        with _jax.working_in(module), Differentiation(module, rules) as diff:
            diff.block(self.entry)
            takes, _ = kinds_in(diff.function(self.entry))
            mask = mask_at(diff, self.entry, takes, self.wrt, "argument")
            found = schedules(diff, self.entry, mask)
            chosen = next((each for each in found if each.bytes <= self.bytes), found[-1])
            for edit in chosen.edits:
                edit(diff)


def estimates(module: ir.Module, rules: Rules, wrt: Sequence[int]) -> list[int]:
    """Return the bytes of the schedules of `@main`, the one that recomputes nothing first."""
    with _jax.working_in(module), Differentiation(module, rules) as diff:
        count = len(diff.block("main").arguments)
        mask = mask_of(i in wrt for i in range(count))
        return [each.bytes for each in schedules(diff, "main", mask)]
