"""The command line of pullback: its commands, arguments and options.

It stands beside the package and imports nothing of it, nor JAX: help and the completion of a shell
come at once. `call` imports what a command does when the command runs.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from pullback_cli.check import check
from pullback_cli.compile import compile
from pullback_cli.derive import derive
from pullback_cli.dump import dump
from pullback_cli.info import info
from pullback_cli.opt import opt
from pullback_cli.reduce import reduce
from pullback_cli.run import run
from pullback_cli.view import view

__all__ = ["main", "opt"]


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(importlib.import_module("pullback.tools.show").versions())
        ctx.exit()


@click.group(
    commands=[check, compile, derive, dump, info, opt, reduce, run, view],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main(**_: Any) -> None:
    """JAX programs as MLIR modules that keep their derivative rules."""
