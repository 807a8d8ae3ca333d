"""Search a program for the op that makes a NaN, and describe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.errors import PullbackError
from pullback.nans.describe import Source, report
from pullback.nans.links import Bad, holds_floats
from pullback.nans.probes import Place, Probes
from pullback.nans.report import NanReport
from pullback.nans.walk import Birth, Marks, Walk
from pullback.program.memo import once

if TYPE_CHECKING:
    from pullback import Program


def search(program: Program, operands: Sequence[Any], infs: bool) -> NanReport | None:
    """Return a report on the first NaN that reaches a result; None if no result has one.

    The first walk finds it. Ways from several elements join, so another walk, from one element that
    it reaches, finds its way.

    Args:
      operands: the arguments of `@main`.
      infs: infinities are looked for as well.
    """
    bad: Bad = (lambda x: ~np.isfinite(x)) if infs else np.isnan
    probes = _probes(program)
    inputs = [np.asarray(x, dtype) for x, dtype in zip(operands, probes.dtypes(), strict=True)]
    results = probes.outputs(Place("main"), inputs)
    wanted = _ends(bad, results)
    if not any(wanted):
        return None
    first, every = _walk(probes, bad, inputs, wanted)
    alone = [x and _only(x, every.ends[every.ends > 0][0]) for x in wanted]
    found, marks = _walk(probes, bad, inputs, alone)
    if found == first if isinstance(found, int) else found.is_at(first):
        marks = replace(marks, ends=every.ends)
    sources: list[Source | None] = []
    if isinstance(found, Birth):
        sources = [_source(probes, bad, inputs, alone, found, i) for i in range(len(found.causes))]
    value = found.value if isinstance(found, Birth) else inputs[found]
    what = "inf or NaN" if infs else "NaN"
    return report(program, what, found, value, marks, results, sources)


@once
def _probes(program: Program) -> Probes:
    """Return the probes of a program, which keep what was compiled."""
    return Probes(program)


def _ends(bad: Bad, results: Sequence[Any]) -> list[Marks | None]:
    """Mark the bad elements of the results, numbered through all results, the last one by 1.

    So of several numbers, the largest is that of the first element.
    """
    found: list[Marks | None] = []
    number = sum(1 if x is None else x.size for x in results)
    for x in results:
        size = 1 if x is None else x.size
        marks = None
        if x is not None and holds_floats(x) and (mask := bad(x)).any():
            numbers = np.arange(number, number - size, -1).reshape(x.shape)
            marks = Marks(np.where(mask, numbers, 0))
        found.append(marks)
        number -= size
    return found


def _only(marks: Marks, end: int) -> Marks | None:
    ends = np.where(marks.ends == end, end, 0)
    return Marks(ends) if ends.any() else None


def _walk(
    probes: Probes, bad: Bad, inputs: Sequence[Any], wanted: Sequence[Marks | None]
) -> tuple[Source, Marks]:
    """Return the first op that makes what is wanted, or an argument that has it, by its position.

    And the elements of it that reach what is wanted.
    """
    walk = Walk(probes, bad)
    for position, marks in enumerate(walk.run(inputs, wanted)):
        if marks is not None:
            return position, marks
    if walk.birth is None:
        raise PullbackError(
            "a result has a NaN, and no op makes one where the program runs block by block: XLA "
            "rounds otherwise there",
            do="run the program in another precision, or in parts",
        )
    return walk.birth, walk.birth.marks


def _source(
    probes: Probes,
    bad: Bad,
    inputs: Sequence[Any],
    wanted: Sequence[Marks | None],
    birth: Birth,
    operand: int,
) -> Source | None:
    """Return where the infinity in an operand comes from; None if it has none."""
    x, cause = birth.operands[operand], birth.causes[operand]
    if x is None or cause is None or not (np.isinf(x) & cause).any():
        return None
    walk = Walk(probes, bad, (birth, operand))
    reached = walk.run(inputs, wanted)
    return next((i for i, marks in enumerate(reached) if marks is not None), walk.birth)
