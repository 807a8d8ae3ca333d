"""The command `pullback run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pullback_cli.call import call
from pullback_cli.options import Tolerance, source_options


@click.command()
@click.argument("source", type=click.Path())
@source_options("--entry", "--entry-name")
@click.option("--backend", help="cpu, cuda, rocm or tpu. By default where JAX runs.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A .npy file per argument, or .npz files with several, by argument path or in order.",
)
@click.option(
    "--random",
    "seed",
    type=click.IntRange(0),
    help="Random arrays from this seed; numbers that are given stay.",
)
@click.option("--interpret", is_flag=True, help="Use StableHLO's interpreter instead of XLA.")
@click.option("--compare", is_flag=True, help="Run both, and report the largest difference.")
@click.option("--jax", "with_jax", is_flag=True, help="Compare a target with plain JAX.")
@click.option(
    "--find-nan",
    "wants_nan",
    is_flag=True,
    help="Report the op that makes the first NaN in a result; exit with 1 if there is one.",
)
@click.option("--tolerance", type=Tolerance(), help="Exit with 1 when a difference is larger.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Save the results in this .npz file."
)
def run(**given: Any) -> None:
    """Run SOURCE: an MLIR file, `-` for stdin, or a target such as `file.py:function`."""
    call("pullback.tools.run:run", given)
