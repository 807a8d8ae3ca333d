"""The command `pullback derive`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pullback_cli.call import call
from pullback_cli.options import load_rules_option, parse_positions, source_options, whole_number


def _parse_axes(context: Any, parameter: Any, text: str | None) -> Any:
    """Parse `0,none` to a tuple with None for `none`; return None if the option is not given."""
    del context, parameter
    if text is None:
        return None
    try:
        axes = tuple(None if part == "none" else whole_number(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not axes such as 0,none") from None
    return axes


@click.command()
@click.argument("source", type=click.Path())
@click.option("--jvp", is_flag=True, help="(args, tangents) -> (results, tangents).")
@click.option("--vjp", is_flag=True, help="(args, cotangents) -> (results, cotangents).")
@click.option("--grad", is_flag=True, help="(args) -> gradients of a scalar result.")
@click.option("--sparse-jacobian", is_flag=True, help="(args) -> non-zeros of the Jacobian.")
@click.option("--sparse-hessian", is_flag=True, help="(args) -> non-zeros of the Hessian.")
@click.option(
    "--jet",
    type=int,
    metavar="ORDER",
    help="(args, ORDER terms of each) -> (results, ORDER terms of each), along a curve.",
)
@source_options("--entry")
@click.option(
    "--wrt",
    "--argnums",
    "wrt",
    callback=parse_positions,
    help="Positions of the arguments to differentiate, such as 0,1. "
    "By default all of them for --jvp, --vjp and --jet, and 0 otherwise.",
)
@click.option("--order", type=click.IntRange(1), help="How often to differentiate. By default 1.")
@click.option(
    "--vmap", "batch", type=click.IntRange(0), help="Then batch it: so many items at once."
)
@click.option(
    "--in-axes",
    callback=_parse_axes,
    help="With --vmap: where each argument has the batch axis, such as 0,none. By default 0.",
)
@load_rules_option
@click.option("--rules", is_flag=True, help="Stage the rules that a further derivative needs.")
@click.option("--lower", is_flag=True, help="Lower the result to pure StableHLO.")
@click.option(
    "--memory",
    metavar="BUDGET",
    help="Temporaries that a --vjp or --grad may need, such as 8MB; "
    "or a schedule: store, min-cut or recompute.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Print what the last derivative stores, by line, and what it computes again.",
)
@click.option("--json", "as_json", is_flag=True, help="With --explain: as JSON.")
@click.option(
    "--allow-refusals",
    is_flag=True,
    help="Save a program although rules refuse: it raises what they say where they are needed.",
)
@click.option(
    "--entry-name",
    metavar="NAME",
    help="Save the result as an entry of this name beside the entries of SOURCE, in one file.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Write here: text, or a saved program if the name ends in .mlirbc; '-' is stdout.",
)
def derive(**given: Any) -> None:
    """Differentiate or batch SOURCE: an MLIR file, `-`, or a target such as `file.py:function`."""
    call("pullback.tools.derive:derive", given)
