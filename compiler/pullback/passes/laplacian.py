"""Define the pass `laplacian`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.autodiff.laplacian import laplacian_in_place
from pullback.autodiff.state import Differentiation
from pullback.errors import ArgumentMismatchError, NotDifferentiableError
from pullback.ir import build
from pullback.ir.locations import user_line
from pullback.ir.masks import masked
from pullback.passes.differentiating_pass import Derivative
from pullback.passes.vmap import check_batches


@dataclass(frozen=True)
class Laplacian(Derivative):
    """Add up the second derivatives of `entry` by each element of its arguments.

    Before: `f(x) -> y`. After: `f(x) -> (y, Δy)`, in one forward sweep.

    Attributes:
      entry: the function to differentiate, in place.
      wrt: positions of the arguments whose elements are meant; all inexact ones if not given.
      block: the number of elements whose derivatives are computed at a time; all if not given.
    """

    name: ClassVar[str] = "laplacian"
    entry: str = "main"
    wrt: tuple[int, ...] | None = None
    outs = None
    block: int | None = None

    def differentiate(self, diff: Differentiation, mask: str, ct_mask: str) -> None:
        """Run the sweep; every inexact result gets a Laplacian."""
        if self.block is not None and not (isinstance(self.block, int) and self.block > 0):
            raise ArgumentMismatchError(
                f"a Laplacian in blocks of {self.block!r}", do="give a positive integer: block=…"
            )
        check_batches(
            diff.module,
            "Laplacian",
            "add up the second terms of pb.jet(f, (x,), ([e, 0 * e],)) for each direction e",
        )
        arguments = list(enumerate(diff.block(self.entry).arguments))
        for i, a in masked(arguments, mask):
            if build.info(a.type).kind == "c":
                raise NotDifferentiableError(
                    f"argument of `@{self.entry}` at position {i} has type {a.type}, "
                    "by which there is no Laplacian",
                    where=user_line(diff.function(self.entry).location),
                    do="name positions of real arguments only: wrt=",
                )
        laplacian_in_place(diff, self.entry, mask, self.block)
