"""`pullback check`: do the derivative rules of a user's functions agree with what they compute?"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import jax
import numpy as np

import pullback
from pullback._errors import headline
from pullback._jax import tracing
from pullback.frontend.keep import is_inexact
from pullback.frontend.rules import Rule
from pullback.tools.targets import load_target

USERS = ("custom_jvp_call", "custom_vjp_call", "linear_call", "call_hi_primitive")
STEP = {4: 1e-2, 8: 1e-5}
"""The step of central differences by the size of a real number: about the cube root of epsilon."""

PATIENCE = 20.0
"""Seconds after which it is said what is running: a solver need not end at random inputs."""


@dataclass(frozen=True)
class Finding:
    """What checking one rule in one mode showed; `problem` is None where it agrees.

    With no mode, the function is not defined at the inputs, which says nothing of the rule.
    """

    name: str
    mode: str
    where: str
    difference: float
    problem: str | None = None

    def __str__(self) -> str:
        if not self.mode:
            return f"skip {self.name}: {self.problem}"
        verdict = self.problem or f"largest relative difference {self.difference:.2g}"
        return f"{'FAIL' if self.problem else 'ok  '} {self.name} {self.mode}: {verdict}"


def check_rules(rules: Any, seed: int, tolerance: float) -> Iterator[Finding]:
    """Each rule of the user's against central differences of the function beside it."""
    for key in list(rules):
        rule = rules[key]
        if rule.primitive in USERS and rule.inexact:
            with _saying_what_takes_long(rule):
                findings = list(_check(rule, seed, tolerance))
            yield from findings


@contextlib.contextmanager
def _saying_what_takes_long(rule: Rule) -> Iterator[None]:
    message = (
        f"still running `{rule.key}`, called at {rule.where}: if it iterates, it may have no end "
        "at inputs in (0.1, 0.9); then interrupt, and compare this rule where it ends"
    )
    timer = threading.Timer(PATIENCE, click.echo, [message], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check(rule: Rule, seed: int, tolerance: float) -> Iterator[Finding]:
    call = tracing.equations_to_function(rule.call)
    draw = np.random.default_rng(seed)
    args = [_random(draw, aval) for aval in rule.call.in_avals]
    tangents = [_random(draw, args[i]) for i in rule.inexact]
    expected = _differences(call, args, rule.inexact, tangents)
    if not all(np.all(np.isfinite(value)) for value in expected):
        problem = (
            "the function is not finite at inputs in (0.1, 0.9), so its rules were not checked"
        )
        yield Finding(rule.key, "", rule.where, float("nan"), problem)
        return
    cts = [_random(draw, value) for value in expected]
    for mode, slope in (("jvp", _forward), ("vjp", _reverse)):
        try:
            found = slope(call, args, tangents, cts)
        except Exception as error:
            problem = headline(error)
            yield Finding(rule.key, mode, rule.where, float("nan"), problem)
        else:
            yield _compare(rule, mode, float(found), float(_inner(cts, expected)), tolerance)


def _compare(rule: Rule, mode: str, found: float, expected: float, tolerance: float) -> Finding:
    difference = abs(found - expected) / max(abs(found), abs(expected), 1e-3)
    problem = None
    if not np.isfinite(found):
        problem = f"the rule gives {found}"
    elif not difference <= tolerance:
        problem = f"relative difference {difference:.2g} to central differences"
    return Finding(rule.key, mode, rule.where, difference, problem)


def _forward(call: Any, args: list[Any], tangents: list[Any], cts: list[Any]) -> Any:
    """`<ct, J t>`; the transformations refuse a rule that is not linear."""
    program = pullback.trace(lambda *xs: _inexact(call(*xs)))(*args)
    return _inner(cts, _inexact(program.jvp()(*args, *_slots(args, tangents))[1]))


def _reverse(call: Any, args: list[Any], tangents: list[Any], cts: list[Any]) -> Any:
    """`<J' ct, t>`, the same number."""
    program = pullback.trace(lambda *xs: _inexact(call(*xs)))(*args)
    return _inner(_inexact(program.vjp()(*args, cts)[1]), tangents)


def _differences(call: Any, args: list[Any], moved: list[int], tangents: list[Any]) -> list[Any]:
    precision = min(args[i].real.dtype.itemsize for i in moved)
    step = STEP.get(precision, 1e-1)

    def at(sign: int) -> list[Any]:
        point = list(args)
        for i, tangent in zip(moved, tangents, strict=True):
            point[i] = (args[i] + sign * step * tangent).astype(args[i].dtype)
        return _inexact(jax.jit(call)(*point))

    return [(up - down) / (2 * step) for up, down in zip(at(1), at(-1), strict=True)]


def _slots(args: list[Any], tangents: list[Any]) -> list[Any]:
    rest = iter(tangents)
    return [next(rest) if is_inexact(arg) else None for arg in args]


def _inexact(values: Any) -> list[Any]:
    return [value for value in jax.tree.leaves(values) if is_inexact(value)]


def _inner(left: list[Any], right: list[Any]) -> Any:
    pairs = zip(left, right, strict=True)
    return sum(np.sum(np.asarray(a) * np.asarray(b)).real for a, b in pairs)


def _random(draw: np.random.Generator, aval: Any) -> Any:
    if not is_inexact(aval):
        return jax.numpy.ones(aval.shape, aval.dtype)
    return jax.numpy.asarray(draw.uniform(0.1, 0.9, aval.shape), aval.dtype)


@click.command()
@click.argument("target")
@click.option("--args", "arguments", help="Argument types of the target, such as 'f32[8,128]'.")
@click.option("--seed", default=0, show_default=True, help="Of the random inputs.")
@click.option("--tolerance", default=2e-2, show_default=True, help="Largest relative difference.")
def check(target: str, arguments: str | None, seed: int, tolerance: float) -> None:
    """Compare the rules of the functions that TARGET calls with central differences.

    The inputs of each are random in (0.1, 0.9), whatever the target passes; one that is not finite
    there is skipped. A rule that is false on purpose is reported: exit code 1.
    """
    loaded = load_target(target, arguments)
    program = loaded.trace()
    findings = []
    for finding in check_rules(program.rules, seed, tolerance):
        findings.append(finding)
        click.echo(str(finding))
        if finding.problem:
            click.echo(f"       where: {finding.where}")
    checks = [finding for finding in findings if finding.mode]
    failed = sum(finding.problem is not None for finding in checks)
    skipped = len(findings) - len(checks)
    click.echo(
        f"{len(checks)} checks of rules, {failed} failed" + f", {skipped} skipped" * (skipped > 0)
    )
    if failed:
        raise SystemExit(1)
