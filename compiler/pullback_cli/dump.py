"""The command `pullback dump`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pullback_cli.call import call
from pullback_cli.options import source_options, whole_number

STAGES = ("jaxpr", "kept", "program", "stablehlo", "hlo", "jvp", "vjp", "grad")
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def _parse_constants(context: Any, parameter: Any, text: str | None) -> int | str | None:
    """Parse a number; `all` stays."""
    del context, parameter
    if text is None or text == "all":
        return text
    try:
        number = whole_number(text)
    except ValueError:
        number = -1
    if number < 0:
        raise click.BadParameter(f"{text!r} is neither a number of elements nor all")
    return number


@click.command()
@click.argument("source", type=click.Path())
@source_options("--entry", "--entry-name")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    default=("program",),
    show_default=True,
    type=click.Choice([*STAGES, "all"]),
    help="What to show; may be given several times. All but the derivatives: all.",
)
@click.option("--rules", is_flag=True, help="Stage the derivative rules: show their bodies.")
@click.option(
    "--platform",
    type=click.Choice(PLATFORMS),
    help="Lower for this platform, by default where JAX runs; only the stage hlo needs it here.",
)
@click.option("--locations", is_flag=True, help="Show the location of each op, as MLIR writes it.")
@click.option(
    "--lines", is_flag=True, help="Show above ops the line of Python that they come from."
)
@click.option(
    "--constants",
    callback=_parse_constants,
    metavar="N|all",
    help="Show the elements of constants that have up to N, by default 64; all of them in files.",
)
@click.option("--stats", is_flag=True, help="Count functions, ops and bytes; print no IR.")
@click.option("--json", "as_json", is_flag=True, help="With --stats: as JSON, by stage.")
@click.option("--print-ir-after-all", is_flag=True, help="Show the module after each pass.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write one file per stage into this folder.",
)
def dump(**given: Any) -> None:
    """Show the IR of SOURCE: a target such as `file.py:function`, an MLIR file, or `-`.

    Without --args, the arguments are the function's or its module's `example_args`.
    """
    call("pullback.tools.dump:dump", given)
