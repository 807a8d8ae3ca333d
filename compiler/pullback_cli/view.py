"""The command `pullback view`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pullback_cli.call import call
from pullback_cli.options import parse_positions, source_options


@click.command()
@click.argument("source", type=click.Path())
@source_options("--entry", "--entry-name")
@click.option(
    "--derivative",
    "mode",
    type=click.Choice(["jvp", "vjp", "grad"]),
    help="Show this derivative; by default vjp, if there is one.",
)
@click.option(
    "--wrt", callback=parse_positions, help="Positions of the arguments to differentiate by: 0,1."
)
@click.option(
    "--explorer",
    is_flag=True,
    help="Show graphs in Google's Model Explorer, which the extra `explorer` installs.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page to this file, and open no browser.",
)
def view(**given: Any) -> None:
    """Show SOURCE as a page: source lines, the program, its derivative, lowered StableHLO.

    SOURCE is a target such as `file.py:function`, an MLIR file, a saved program, or `-`. A click on
    a line, an op, a value or a rule marks what it comes from and what comes of it.
    """
    call("pullback.tools.view.command:view", given)
