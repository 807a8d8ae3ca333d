"""Check that the solvers of a `custom_linear_solve` solve, and are each other's transpose."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import pullback
from pullback._jax import call_operands, tracing
from pullback.errors import headline
from pullback.frontend.rules.kept_call import KeptCall
from pullback.ir import locations
from pullback.tools import slopes
from pullback.tools.findings import Finding, Inputs, apart, inexact, largest


@dataclass(frozen=True)
class Solves:
    """The linear solves that a target calls, with their operands; found when asked for."""

    target: Any
    inputs: Inputs

    @functools.cached_property
    def met(self) -> list[call_operands.Solve]:
        arguments = map(self.inputs.of_type, self.target.in_avals)
        return list(call_operands.solves_met(self.target, [*arguments]))


def check_solve(
    rule: KeptCall, solves: Solves, inputs: Inputs, tolerance: float
) -> Iterator[Finding]:
    """Compare a solution with its system, and cotangents of right sides with solutions.

    Args:
      rule: of the call.
      solves: that the target calls: only there is known what is closed over.
      inputs: of right sides.
      tolerance: the largest relative difference.
    """
    try:
        met = [each for each in solves.met if locations.of_equation(each.equation) == rule.where]
    except Exception as error:
        yield Finding.unknown(rule, f"the target fails at inputs in {inputs}: {headline(error)}")
        return
    if not met:
        unknown = "it is in a loop, a branch or a rule, where its system is not known here"
        yield Finding.unknown(rule, unknown)
    for solve in met if rule.generation == 0 else ():  # those of rules are its derivatives
        yield from _check(rule, solve, inputs, tolerance)


def _check(
    rule: KeptCall, met: call_operands.Solve, inputs: Inputs, tolerance: float
) -> Iterator[Finding]:
    call = tracing.equations_to_function(met.call)
    right = [inputs.of_type(jax.typeof(each)) for each in met.right]

    @jax.jit
    def solve(*right: Any) -> list[Any]:
        return inexact(call(*met.closed_over, *right)[: len(right)])

    found, wanted = slopes.reals(met.matvec(solve(*right))), slopes.reals(right)
    residual = largest([apart(*each, 1e-30) for each in zip(found, wanted, strict=True)])
    is_solved = residual <= tolerance
    problem = f"the solution, put into matvec, differs from the right side by {residual:.2g}"
    if met.depends and not is_solved:
        special = f"its system depends on inputs, in {inputs} here, and may have to be special"
        yield Finding.unknown(rule, f"{problem}: {special}")
        return
    yield Finding(rule.key, "solve", rule.where, residual, None if is_solved else problem)
    if not met.has_transpose:
        return
    try:
        difference = _transpose(solve, right, inputs)
    except Exception as error:
        yield Finding(rule.key, "vjp", rule.where, float("nan"), headline(error))
        return
    problem = f"relative difference {difference:.2g} to the transpose of solve"
    is_right = difference <= tolerance
    yield Finding(rule.key, "vjp", rule.where, difference, None if is_right else problem)


def _transpose(solve: Any, right: list[Any], inputs: Inputs) -> float:
    """Return the largest difference of `<S' ct, b>` to `<ct, S b>`, relative to the summands."""
    program = pullback.trace(solve)(*right).vjp()
    differences = [0.0]
    tangents = list(slopes.directions(inputs.direction, inputs.generator, right))
    solutions = [slopes.reals(solve(*each)) for each in tangents]
    for ct in slopes.directions(inputs.direction, inputs.generator, right):
        pulled, paired = slopes.paired(inexact(program(*right, ct)[1])), slopes.paired(ct)
        for tangent, solution in zip(tangents, solutions, strict=True):
            pairs = (pulled, slopes.reals(tangent)), (paired, solution)
            difference = abs(slopes.inner(*pairs[0]) - slopes.inner(*pairs[1]))
            scale = max(
                float(slopes.inner(*([*map(np.abs, each)] for each in pair))) for pair in pairs
            )
            differences.append(float(difference) / max(scale, 1e-30))
    return largest(differences)
