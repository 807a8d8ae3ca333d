"""The command `pullback check`."""

from __future__ import annotations

from typing import Any

import click

from pullback_cli.call import call
from pullback_cli.options import Tolerance, load_rules_option, source_options

TOLERANCE = 1e-3


@click.command()
@click.argument("target", type=click.Path())
@source_options("--entry", "--entry-name")
@load_rules_option
@click.option("--order", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the random numbers.")
@click.option(
    "--tolerance",
    type=Tolerance(),
    default=TOLERANCE,
    show_default=True,
    help="Largest relative difference.",
)
@click.option(
    "--inputs",
    type=float,
    nargs=2,
    metavar="LOW HIGH",
    help="Random floats are between these, and there are no special points.",
)
@click.option(
    "--installed", is_flag=True, help="Check also the rules inside of installed packages."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(**given: Any) -> None:
    """Compare the rules of the functions that TARGET calls with these functions.

    TARGET is a function, as in model.py:loss, or a saved program or MLIR, whose rules are functions
    of the module. Each rule is checked at the values that reach it from `example_args` (or from
    random numbers of the types in --args, or of a file's arguments), near these, and at zeros,
    ties, negative and large numbers: derivatives up to --order, values, linearity, types, and
    batches. Each finding is `ok`, `FAIL`, or `doubtful` where noise hides the answer.
    `pullback.testing.intended` marks a rule that is no derivative.

    The exit code is 1 if a rule fails, 2 if there is no rule to check or the target cannot be
    read, else 0.
    """
    call("pullback.tools.check:check", given)
