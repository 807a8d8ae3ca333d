"""Check that the solvers of a `custom_linear_solve` solve, and are each other's transpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from pullback._jax import call_operands, tracing
from pullback.errors import headline
from pullback.frontend.rules.kept_call import KeptCall
from pullback.testing.findings import Finding, Verdict
from pullback.testing.slopes import Draw, inner, paired, reals
from pullback.testing.subjects import inexact

SOLVED = 2e-2
"""The largest relative residual: solvers may stop at a tolerance of their own."""


def check_solve(
    rule: KeptCall, operands: list[Any], are_examples: bool, blank: Finding, draw: Draw
) -> Iterator[Finding]:
    """Compare a solution with its system, and cotangents of right sides with solutions.

    Args:
      rule: of the call.
      operands: of the call.
      are_examples: the system is one that the user has, and not made of random numbers.
      blank: a finding to fill in.
      draw: random numbers.
    """
    met = call_operands.Solve(rule.call, operands)
    call = tracing.equations_to_function(rule.call)
    right = [draw.numbers(each) for each in met.right]

    def solve(*right: Any) -> list[Any]:
        return inexact(call(*met.closed_over, *right)[: len(right)])

    solve = jax.jit(solve)
    found, wanted = reals(met.matvec(solve(*right))), reals(right)
    residual = max(_apart(*each) for each in zip(found, wanted, strict=True))
    blank = replace(blank, check="solve", at_fault="solve")
    if not residual <= SOLVED:
        reason = f"the solution, put into matvec, differs from the right side by {residual:.2g}"
        if not are_examples:
            reason += ": its system is random here, and may have to be special"
        verdict: Verdict = "FAIL" if are_examples else "doubtful"
        yield replace(blank, verdict=verdict, reason=reason, found=residual, wanted=0.0)
        if not are_examples:
            return
    else:
        yield blank
    if met.has_transpose:
        yield _of_transpose(solve, right, replace(blank, check="vjp"), draw)


def _of_transpose(
    solve: Callable[..., list[Any]], right: list[Any], blank: Finding, draw: Draw
) -> Finding:
    try:
        difference = _transpose(solve, right, draw)
    except Exception as error:
        return replace(blank, verdict="FAIL", reason=headline(error))
    if difference <= SOLVED:
        return blank
    reason = f"relative difference {difference:.2g} to the transpose of solve"
    return replace(
        blank, verdict="FAIL", reason=reason, at_fault="transpose_solve", found=difference
    )


def _apart(found: np.ndarray, wanted: np.ndarray) -> float:
    largest = max(np.abs(wanted).max(initial=0.0), 1e-30)
    return float(np.abs(found - wanted).max(initial=0.0) / largest)


def _transpose(solve: Callable[..., list[Any]], right: list[Any], draw: Draw) -> float:
    """Return the largest difference of `<S' ct, b>` to `<ct, S b>`, relative to the summands."""
    pull = jax.jit(lambda cts: jax.vjp(solve, *right)[1](cts))
    worst = 0.0
    for _ in range(4):
        tangents, cts = ([draw.numbers(x, signed=True) for x in right] for _ in range(2))
        pairs = (
            (paired(inexact(pull(list(cts)))), reals(tangents)),
            (paired(cts), reals(solve(*tangents))),
        )
        difference = abs(inner(*pairs[0]) - inner(*pairs[1]))
        size = max(inner(*([*map(np.abs, each)] for each in pair)) for pair in pairs)
        worst = max(worst, difference / max(size, 1e-30))
    return worst
