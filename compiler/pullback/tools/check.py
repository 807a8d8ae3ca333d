"""Run `pullback check`: compare the rules of a user's functions with central differences."""

from __future__ import annotations

import math

import click
import jax
import numpy as np

from pullback.errors import UsageError
from pullback.tools.findings import INPUTS, Inputs
from pullback.tools.rule_checks import check_rules
from pullback.tools.solve_checks import Solves
from pullback.tools.sources import Source, Tolerance
from pullback.tools.targets import load_target


@click.command()
@click.argument("target")
@click.option("--args", "arguments", help="Argument types of the target, such as 'f32[8,128]'.")
@click.option("--seed", default=0, show_default=True, help="Of the random inputs.")
@click.option(
    "--tolerance",
    type=Tolerance(),
    default=2e-2,
    show_default=True,
    help="Largest relative difference.",
)
@click.option(
    "--inputs",
    "bounds",
    type=float,
    nargs=2,
    default=INPUTS,
    show_default=True,
    metavar="LOW HIGH",
    help="Random floats are between these.",
)
def check(
    target: str,
    arguments: str | None,
    seed: int,
    tolerance: float,
    bounds: tuple[float, float],
) -> None:
    """Compare the rules of the functions that TARGET calls with central differences.

    What a rule returns beside derivatives is compared with what the function returns. The solvers
    of a jax.lax.custom_linear_solve must solve it, and be transposes of each other.
    The inputs of each are random, whatever the target passes: floats between LOW and HIGH, integers
    that are one, and booleans. One that is not finite there is skipped. A rule that is wrong for
    other inputs is not noticed. A rule that is false on purpose is reported: exit code 1.
    """
    if not bounds[0] < bounds[1] or not all(map(math.isfinite, bounds)):
        raise UsageError(
            "--inputs wants two numbers, the smaller one first", do="write --inputs -2 2"
        )
    loaded = load_target(target, arguments)
    program = Source(target, loaded.trace()).fixed("a check", do="write numbers in --args")
    closed = loaded.call(jax.make_jaxpr(loaded.function))
    inputs, of_target = (Inputs(np.random.default_rng(seed), *bounds) for _ in range(2))
    solves, findings = Solves(closed, of_target), []
    for finding in check_rules(program.rules, closed.consts, solves, inputs, tolerance):
        findings.append(finding)
        click.echo(str(finding))
        if finding.problem:
            click.echo(f"       where: {finding.where}")
    checks = [finding for finding in findings if finding.mode]
    failed = sum(finding.problem is not None for finding in checks)
    skipped = len(findings) - len(checks)
    click.echo(
        f"{len(checks)} checks of rules, {failed} failed"
        + f", {skipped} skipped" * (skipped > 0)
        + f"; inputs in {inputs}"
    )
    if failed:
        raise SystemExit(1)
