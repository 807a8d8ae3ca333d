"""Search a program for the op that makes a NaN, and describe it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.errors import PullbackError
from pullback.program.nans.describe import Description, Source
from pullback.program.nans.links import holds_floats
from pullback.program.nans.probes import Place, Probes
from pullback.program.nans.report import NanReport
from pullback.program.nans.walk import Bad, Birth, Marks, Trail, Walk

if TYPE_CHECKING:
    from pullback.api.program import Program


def search(program: Program, operands: Sequence[Any], infs: bool) -> NanReport | None:
    """Return a report on the first NaN that reaches a result; None if no result has one.

    Args:
      operands: the arguments of `@main`.
      infs: infinities are looked for as well.
    """
    bad: Bad = _is_not_finite if infs else np.isnan
    probes = Probes(program)
    main = Place("main")
    inputs = [np.asarray(x, dtype) for x, dtype in zip(operands, probes.dtypes(), strict=True)]
    results = probes.outputs(main, inputs)
    wanted = [_marks(bad, x, i) for i, x in enumerate(results)]
    if not any(wanted):
        return None
    walk = Walk(probes, bad)
    reached = walk.run(inputs, wanted)
    describe = Description(program, "inf or NaN" if infs else "NaN")
    for position, marks in enumerate(reached):
        if marks is not None:
            return describe.argument(position, inputs[position], marks)
    if walk.birth is None:
        raise _not_again(wanted)
    causes = [_source(probes, inputs, walk.birth, i) for i in range(len(walk.birth.operands))]
    return describe.op(walk.birth, causes)


def _is_not_finite(x: Any) -> Any:
    return ~np.isfinite(x)


def _marks(bad: Bad, x: Any, result: int) -> Marks | None:
    """Mark the bad elements of a result of the program."""
    if x is None or not holds_floats(x) or not (mask := bad(x)).any():
        return None
    element = tuple(int(i) for i in np.argwhere(mask)[0])
    return Marks(mask, result=result, element=element)


def _source(probes: Probes, inputs: Sequence[Any], birth: Birth, operand: int) -> Source | None:
    """Return where the infinity in an operand comes from; None if it has none."""
    x, cause = birth.operands[operand], birth.causes[operand]
    if x is None or cause is None or not (infinite := np.isinf(x) & cause).any():
        return None
    seeds: list[Marks | None] = [None] * len(birth.operands)
    seeds[operand] = Marks(infinite, Trail(birth.op, birth.marks.trail))
    walk = Walk(probes, np.isinf, seeds)
    reached = walk.run(inputs, (), birth.steps)
    return next((i for i, marks in enumerate(reached) if marks is not None), walk.birth)


def _not_again(wanted: Sequence[Marks | None]) -> PullbackError:
    results = ", ".join(str(i) for i, marks in enumerate(wanted) if marks is not None)
    return PullbackError(
        f"result {results} has a NaN, and no op was found that makes it: XLA computes other "
        "numbers where it returns what is in between",
        do="run the program in another precision, or in parts",
    )
