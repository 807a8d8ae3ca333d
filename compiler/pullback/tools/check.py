"""Run `pullback check`: compare the rules of a user's functions with these functions."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import click

from pullback import Program
from pullback.errors import UsageError
from pullback.frontend.rules.kept_call import KeptCall
from pullback.program.progress import Progress
from pullback.testing.check import Watcher, check_rules
from pullback.testing.findings import Report
from pullback.tools.plugins import load_rules
from pullback.tools.sources import Source, load_source
from pullback.tools.targets import blaming

PATIENCE = 20.0
"""Seconds after which it is said what is running: a function need not end at all points."""


def check(
    target: str,
    plugins: tuple[str, ...],
    order: int,
    seed: int,
    tolerance: float,
    inputs: tuple[float, float] | None,
    installed: bool,
    as_json: bool,
    **of_source: Any,
) -> None:
    """Compare the rules of the functions that TARGET calls with these functions."""
    if inputs and (not inputs[0] < inputs[1] or not all(map(math.isfinite, inputs))):
        raise UsageError(
            "--inputs wants two numbers, the smaller one first", do="write --inputs -2 2"
        )
    load_rules(plugins)
    with blaming(target), _watching() as watcher:
        source = load_source(target, **of_source)
        report = check_rules(
            source.fixed("a check"),
            *(source.target.arguments if source.target else ()),
            order=order,
            tolerance=tolerance,
            seed=seed,
            inputs=inputs,
            raises=False,
            installed=installed,
            watcher=watcher,
        )
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else str(report))
    if not report.findings:
        raise _nothing_to_check(source, report)
    if report.failed:
        raise SystemExit(1)


def _nothing_to_check(source: Source, report: Report) -> UsageError:
    """Return the error for a program that calls no function whose rules are checked."""
    if report.left_out:
        return UsageError(
            f"`{source.spec}` has rules of installed packages only, and these are left out",
            do="check them: --installed",
        )
    program = source.program
    if isinstance(program, Program) and program.environment.lost_after is not None:
        return UsageError(
            f"no rule was found in `{source.spec}`: jax.export leaves out the rules of functions",
            do="save the function with pb.trace(f)(…).save, and check that file",
        )
    return UsageError(
        f"no rule was found: `{source.spec}` calls no function that has a derivative rule to check",
        do="name a function that calls one with custom_jvp, custom_vjp or linear_call; rules for "
        "composites are given by --load-rules",
    )


@contextlib.contextmanager
def _watching() -> Iterator[Watcher]:
    """Show a bar on a terminal, and name on standard error a rule that takes long."""
    timers: list[threading.Timer] = []
    with Progress() as progress:

        def watch(rule: KeptCall, number: int, total: int) -> None:
            progress.show(f"checking {rule.key}", number, total)
            _replaced(timers, rule)

        try:
            yield watch
        finally:
            _replaced(timers, None)


def _replaced(timers: list[threading.Timer], rule: KeptCall | None) -> None:
    """Stop the timer of the last rule, and start one for this."""
    for timer in timers:
        timer.cancel()
    timers.clear()
    if rule is None:
        return
    message = (
        f"still running `{rule.key}`, called at {rule.where}: if it iterates, it may have no end "
        "at these points; then interrupt, and give example_args or --inputs where it ends"
    )
    timers.append(threading.Timer(PATIENCE, click.echo, [message], {"err": True}))
    timers[0].daemon = True
    timers[0].start()
