"""The command `pullback compile`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pullback_cli.call import call
from pullback_cli.options import entry_option


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@entry_option("--entry", "--entry-name")
@click.option("--backend", help="cpu, cuda, rocm or tpu; by default that of the first device.")
@click.option(
    "--engine", type=click.Choice(["jax", "pjrt", "iree"]), help="What compiles. By default jax."
)
@click.option("--plugin", type=click.Path(), help="The path of a PJRT plug-in that compiles.")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to write."
)
def compile(**given: Any) -> None:
    """Compile FILE, a saved program, ahead of time, for pullback_runtime.load_executable.

    The output is machine code for this version of the engine and this kind of device, with the
    program beside it: load it only if you trust who compiled it.
    """
    call("pullback.tools.compile:compile", given)
