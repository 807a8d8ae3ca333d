"""The stages of a program that a page shows, and what is stored for the backward sweep."""

from __future__ import annotations

from dataclasses import dataclass

from pullback import Program
from pullback.errors import PullbackError
from pullback.ir.modules import entry_of
from pullback.program.residual_table import ResidualTable
from pullback.tools.derive import Positions, derive_program
from pullback.tools.view.listing import Listing, read_listing
from pullback_runtime.files._pattern import Pattern

DEFAULT = "vjp"


@dataclass(frozen=True)
class Stages:
    """A program at its stages.

    Attributes:
      listings: the program with its rules, its derivative, and what is left of that when our ops
        are lowered away; without a derivative, what is left of the program.
      stored: what reverse mode stores; None for other derivatives.
      remark: why there is no derivative; empty if there is one.
      pattern: of the non-zeros, if the program is a sparse derivative.
    """

    listings: tuple[Listing, ...]
    stored: ResidualTable | None = None
    remark: str = ""
    pattern: Pattern | None = None


def read_stages(program: Program, mode: str | None, wrt: Positions = None) -> Stages:
    """Differentiate and lower a program, and read each stage.

    Args:
      program: of a function.
      mode: a derivative as `pullback derive` has them. By default reverse mode; a program that
        has none is then shown without.
      wrt: the positions of the arguments.
    """
    try:
        staged = program.run_passes("stage-rules")
        first = read_listing(staged.module, "program")
        derived = derive_program(staged, mode or DEFAULT, wrt)
    except PullbackError as error:
        if mode is not None:
            raise
        return _without_derivative(program, error)
    stored = None
    if mode != "jvp":
        positions = 0 if wrt is None and mode == "grad" else wrt
        stored = staged.split_vjp(positions).residuals()
    primals = len(entry_of(staged.module)[1].arguments)
    second = read_listing(derived.module, mode or DEFAULT, primals)
    listings = first, second, _lowered(derived, primals)
    return Stages(listings, stored, pattern=program.pattern)


def _without_derivative(program: Program, error: PullbackError) -> Stages:
    copy = program.run_passes("")
    first = read_listing(copy.module, "program")
    remark = f"no derivative: {error.message}"
    return Stages((first, _lowered(copy)), remark=remark, pattern=program.pattern)


def _lowered(program: Program, primals: int | None = None) -> Listing:
    lowered = program.run_passes("to-stablehlo", verify_each=True)
    return read_listing(lowered.module, "stablehlo", primals)
