"""The command `pullback info`."""

from __future__ import annotations

from typing import Any

import click

from pullback_cli.call import call
from pullback_cli.options import allow_custom_calls_option, entry_option


@click.command()
@click.argument("file", type=click.Path())
@entry_option("--entry", "--entry-name")
@allow_custom_calls_option
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def info(**given: Any) -> None:
    """Show the signature, rules, platforms, versions and sizes of FILE, or of `-` for stdin."""
    call("pullback.tools.info:info", given)
