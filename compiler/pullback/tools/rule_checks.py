"""Check that the rules of a user's functions agree with what the functions compute."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np

import pullback
from pullback._jax import call_operands, jaxprs, source_info, tracing
from pullback._jax.tangent_types import is_inexact
from pullback.errors import MissingRuleError, headline
from pullback.frontend.rules.kept_call import KeptCall
from pullback.ir.masks import Asked
from pullback.tools import slopes
from pullback.tools.findings import Finding, Inputs, alike, apart, inexact, largest
from pullback.tools.solve_checks import Solves, check_solve

USERS = ("custom_jvp_call", "custom_vjp_call", "linear_call", "call_hi_primitive")
BACKWARD = ("custom_vjp_call", "call_hi_primitive")

RULES_OF_RULES = 2
"""To this depth are rules of functions checked that only rules call."""

LAST_DIGITS = 100.0
"""Times the precision: values of a rule and its function that differ by less are equal."""

PATIENCE = 20.0
"""Seconds after which it is said what is running: a solver need not end at random inputs."""


Slopes = list[tuple[slopes.Slope, float]]
"""With the size of what each is the slope of."""


@dataclass(frozen=True)
class Case:
    """A function at a point, and the directions in which it is compared.

    Attributes:
      results: the function; returns those results that have slopes.
      args: its arguments that have slopes.
      inputs: the source of the arguments.
      tolerance: the largest relative difference.
      lines: values along the directions, zero where they are not finite.
      finite: masks of where they are finite.
      finer: returns values closer to the arguments along one of the lines.
    """

    results: Callable[..., list[Any]]
    args: list[Any]
    inputs: Inputs
    tolerance: float
    lines: list[slopes.Line]
    finite: list[np.ndarray]
    finer: Callable[[slopes.Line], slopes.Line]

    def difference(
        self, line: slopes.Line, slope_of: Callable[[slopes.Line], Slopes], found: list[np.ndarray]
    ) -> float:
        """Return how far slopes are from those found; near a kink, by those of the finer line."""
        coarse = slope_of(line)
        difference = self._largest(coarse, found)
        if not self.tolerance < difference < np.inf:
            return difference
        finer = slope_of(self.finer(line).only(self.finite))
        pairs = zip(coarse, finer, strict=True)
        better = [(old.corrected(new), scale) for (old, scale), (new, _) in pairs]
        return self._largest(better, found)

    def _largest(self, given: Slopes, found: list[np.ndarray]) -> float:
        pairs = zip(given, found, strict=True)
        each = [slope.difference(value, scale, self.tolerance) for (slope, scale), value in pairs]
        return largest(each)

    def of_values(self, found: Any) -> float:
        """Return the largest difference of the rule's primal results to the function's."""
        pairs = zip(inexact(found), self.results(*self.args), self.finite, strict=True)
        return largest([_apart(*each, self.tolerance) for each in pairs])


def _apart(value: Any, wanted: Any, where: np.ndarray, tolerance: float) -> float:
    """Return the largest difference relative to the largest number; 0 if within rounding."""
    digits = min(LAST_DIGITS * float(jnp.finfo(wanted.dtype).eps), tolerance)
    found, expected = (np.where(where, each, 0.0) for each in slopes.reals([value, wanted]))
    return apart(found, expected, digits)


def check_rules(
    rules: Any,
    constants: Sequence[Any],
    solves: Solves,
    inputs: Inputs,
    tolerance: float,
) -> Iterator[Finding]:
    """Compare each rule of the user's with central differences of its function; yield findings.

    Rules of functions that only other rules call are found when those are traced.

    Args:
      rules: of a program.
      constants: the arrays that the program closes over.
      solves: that it calls.
      inputs: of the functions.
      tolerance: the largest relative difference.
    """
    done: set[str] = set()
    while new := [key for key in rules if key not in done]:
        done.update(new)
        for rule in map(rules.__getitem__, new):
            is_solve = rule.primitive == call_operands.SOLVE
            if not (is_solve or rule.primitive in USERS) or "1" not in rule.own_mask:
                continue
            if (rule.generation or is_solve) and not source_info.is_of_user(rule.call):
                continue
            with _saying_what_takes_long(rule, inputs):
                if is_solve:
                    findings = list(check_solve(rule, solves, inputs, tolerance))
                else:
                    findings = list(_check(rule, constants, inputs, tolerance))
            yield from findings
            if rule.generation < RULES_OF_RULES:
                _enter_rules_of(rules, rule)


def _enter_rules_of(rules: Any, rule: KeptCall) -> None:
    for kind in ("jvp", "vjp"):
        with contextlib.suppress(Exception):  # one that is not there, or that is reported
            rules.traced_rule(rule, kind, Asked(rule.own_mask))


@contextlib.contextmanager
def _saying_what_takes_long(rule: KeptCall, inputs: Inputs) -> Iterator[None]:
    message = (
        f"still running `{rule.key}`, called at {rule.where}: if it iterates, it may have no end "
        f"at inputs in {inputs}; then interrupt, and compare this rule where it ends"
    )
    timer = threading.Timer(PATIENCE, click.echo, [message], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check(
    rule: KeptCall, constants: Sequence[Any], inputs: Inputs, tolerance: float
) -> Iterator[Finding]:
    if rule.key.startswith("custom_root") and not source_info.is_of_user(rule.call):
        yield Finding.unknown(
            rule, "what its functions close over belongs together, which random inputs do not"
        )
        return
    call = tracing.equations_to_function(rule.call)
    closed_over = [alike(constants, aval) for aval in rule.call.in_avals[: rule.closed_over]]
    if any(len(found) > 1 or rule.generation for found in closed_over):
        yield Finding.unknown(
            rule, "which array it closes over is not known here: pass that as an argument"
        )
        return
    values = [inputs.of_type(aval) for aval in rule.call.in_avals]
    values[: rule.closed_over] = [
        found[0] if found else value for found, value in zip(closed_over, values, strict=False)
    ]
    together = [i for i in rule.inexact if i >= rule.closed_over]
    alone = [[i] for i in together] if rule.sees_zeros and len(together) > 1 else []
    for moved in (together, *alone):
        label = "" if moved is together else f" by operand {moved[0]} alone"
        yield from _check_by(rule, label, call, values, moved, inputs, tolerance)


def _check_by(
    rule: KeptCall,
    label: str,
    call: Callable[..., Any],
    values: list[Any],
    moved: list[int],
    inputs: Inputs,
    tolerance: float,
) -> Iterator[Finding]:
    """Check the rule that is used if only the operands `moved` are perturbed."""

    def results(*args: Any) -> list[Any]:
        given = dict(zip(moved, args, strict=True))
        return inexact(call(*(given.get(i, value) for i, value in enumerate(values))))

    precision = slopes.precision(_float_types(rule.call))
    case = _case(results, [values[i] for i in moved], inputs, tolerance, precision)
    if isinstance(case, str):
        yield Finding.unknown(rule, case, label)
        return
    for mode, slope in (("jvp", _forward), ("vjp", _reverse)):
        yield _compared(rule, label, case, mode, slope)


def _case(
    results: Callable[..., list[Any]],
    args: list[Any],
    inputs: Inputs,
    tolerance: float,
    precision: Any,
) -> Case | str:
    """Return the function at its arguments, or the reason why nothing can be compared there."""
    if precision.bits < 16:
        return "it computes with 8 bits or less, whose differences say nothing"
    run = jax.jit(results)

    def line(tangents: list[Any], finer: bool = False) -> slopes.Line:
        return slopes.line(run, args, tangents, precision, finer)

    tangents = slopes.directions(inputs.direction, inputs.generator, args)
    try:
        lines = [line(each) for each in tangents]
    except Exception as error:
        return f"the function fails at inputs in {inputs}: {headline(error)}"
    finite = slopes.where_finite(lines)
    if any(where.size for where in finite) and not any(np.any(where) for where in finite):
        return f"the function is not finite at inputs in {inputs}, so its rules were not checked"
    masked = [each.only(finite) for each in lines]
    return Case(
        results, args, inputs, tolerance, masked, finite, lambda each: line(each.tangents, True)
    )


def _compared(
    rule: KeptCall,
    label: str,
    case: Case,
    mode: str,
    slope: Callable[[Case], tuple[float, float]],
) -> Finding:
    """Compare the derivatives of one mode with the slopes of the function."""
    unknown = functools.partial(Finding.unknown, rule, label=label)
    found = functools.partial(Finding, rule.key + label, mode, rule.where)
    try:
        of_values, difference = slope(case)
    except Exception as error:
        is_missing = isinstance(error, MissingRuleError) and mode == "jvp"
        if is_missing and rule.primitive in BACKWARD and not rule.goes_forward:
            return unknown(f"its backward rule alone gives no jvp: {headline(error)}")
        return found(float("nan"), headline(error))
    if not np.isfinite(difference):
        if not all(map(np.all, case.finite)):
            return unknown(f"its {mode} is not finite, nor is the function at all inputs")
        return found(difference, f"the rule gives {difference}")
    if not difference <= case.tolerance:
        return found(difference, f"relative difference {difference:.2g} to central differences")
    if not of_values <= case.tolerance:
        return found(
            difference,
            f"the rule returns other values than the function: relative difference {of_values:.2g}",
        )
    return found(difference)


def _float_types(closed: Any) -> Iterator[Any]:
    """Yield the types of all floats in a jaxpr."""
    for equation in jaxprs.equations_in(closed):
        for atom in (*equation.invars, *equation.outvars):
            if is_inexact(atom.aval):
                yield atom.aval.dtype


def _forward(case: Case) -> tuple[float, float]:
    """Return the largest difference of values, and that of `J t` to slopes.

    A rule that is not linear raises in the transformations.
    """
    program = pullback.trace(case.results)(*case.args).jvp()

    def of_elements(line: slopes.Line) -> Slopes:
        return [(each, np.abs(each.value).max(initial=0.0)) for each in line.slopes()]

    values, differences = [], []
    for line in case.lines:
        out, tangents = program(*case.args, *line.tangents)
        found = slopes.reals(inexact(tangents))
        masked = [np.where(*each, 0.0) for each in zip(case.finite, found, strict=True)]
        values.append(case.of_values(out))
        differences.append(case.difference(line, of_elements, masked))
    return largest(values), largest(differences)


def _reverse(case: Case) -> tuple[float, float]:
    """Return the largest difference of values, and that of `<J' ct, t>` to slopes of `<ct, f>`."""
    program = pullback.trace(case.results)(*case.args).vjp()
    values, differences = [], []
    results = case.results(*case.args)
    for cts in slopes.directions(case.inputs.direction, case.inputs.generator, results):
        masked = [_masked(*each) for each in zip(cts, case.finite, strict=True)]
        out, found_cts = program(*case.args, masked)
        values.append(case.of_values(out))
        pulled = slopes.paired(inexact(found_cts))
        paired = slopes.paired(masked)

        def of_sum(line: slopes.Line, paired: list[np.ndarray] = paired) -> Slopes:
            return [line.slope_along(paired, case.tolerance)]

        for line in case.lines:
            found = slopes.inner(pulled, slopes.reals(line.tangents))
            differences.append(case.difference(line, of_sum, [found]))
    return largest(values), largest(differences)


def _masked(ct: Any, where: np.ndarray) -> Any:
    return jnp.where(where if where.ndim == ct.ndim else where[..., 0], ct, 0).astype(ct.dtype)
