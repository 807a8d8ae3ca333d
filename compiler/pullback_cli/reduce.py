"""The command `pullback reduce`."""

from __future__ import annotations

from typing import Any

import click

from pullback_cli.call import call
from pullback_cli.options import flag


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "--test",
    "command",
    required=True,
    metavar="COMMAND",
    help="Of the shell; it gets the path of a module in the place of {}, or at its end.",
)
@click.option("--matching", metavar="TEXT", help="Take only a failure that prints this.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop then, with the smallest module so far.",
)
@flag("--allow-unregistered-dialect", "Take ops, types and attributes of unknown dialects.")
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="FILE",
    type=click.Path(),
    help="Write here; '-' is stdout.",
)
def reduce(**given: Any) -> None:
    """Find the smallest module for which COMMAND still fails, from that in FILE.

    COMMAND fails if its exit code is not 0. Functions, ops, results, arguments, constants and
    shapes are taken away as long as it does; each module that it is given is valid.

    \b
    pullback reduce model.mlir --test 'pullback derive --vjp {}' --matching 'no derivative rule'
    """
    call("pullback.tools.reduce:reduce", given)
