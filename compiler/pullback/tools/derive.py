"""`pullback derive`: the derivative of a function or a saved program, as a program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pullback import Program
from pullback._errors import UsageError
from pullback.tools.show import note, show_ir, write
from pullback.tools.sources import load_source

Positions = int | tuple[int, ...] | None

# Mode -> the derivative with respect to arguments at these positions.
MODES: dict[str, Callable[[Program, Positions], Program]] = {
    "jvp": lambda program, wrt: program.jvp(wrt),
    "vjp": lambda program, wrt: program.vjp(wrt),
    "grad": lambda program, wrt: program.grad(0 if wrt is None else wrt),
}


def derive_program(program: Program, mode: str, wrt: Positions = None, order: int = 1) -> Program:
    """The derivative of this order: the same transformation, `order` times."""
    for _ in range(order):
        program = MODES[mode](program, wrt)
    return program


def _parse_positions(context: Any, parameter: Any, text: str | None) -> Positions:
    """`0,1` as a tuple; a single `0` stays a number, so that its gradient is no tuple of one."""
    del context, parameter
    if text is None:
        return None
    try:
        positions = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not positions such as 0,1") from None
    return positions if len(positions) > 1 else positions[0]


@click.command()
@click.argument("source")
@click.option("--jvp", "mode", flag_value="jvp", help="(args, tangents) -> (results, tangents).")
@click.option(
    "--vjp", "mode", flag_value="vjp", help="(args, cotangents) -> (results, cotangents)."
)
@click.option("--grad", "mode", flag_value="grad", help="(args) -> gradients of a scalar result.")
@click.option("--args", "arguments", help="Argument types of a target, such as 'f32[8,128]'.")
@click.option(
    "--wrt",
    callback=_parse_positions,
    help="Positions of the arguments to differentiate, such as 0,1. "
    "By default 0 for --grad, and all of them otherwise.",
)
@click.option("--order", type=click.IntRange(1), default=1, show_default=True)
@click.option("--rules", is_flag=True, help="Stage the rules that a further derivative needs.")
@click.option("--lower", is_flag=True, help="Lower the result to pure StableHLO.")
@click.option(
    "--allow-refusals",
    is_flag=True,
    help="Save a program although rules refuse: it raises what they say where they are needed.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write here: text, or a saved program if the name ends in .mlirbc.",
)
def derive(
    source: str,
    mode: str | None,
    arguments: str | None,
    wrt: Positions,
    order: int,
    rules: bool,
    lower: bool,
    allow_refusals: bool,
    output: Path | None,
) -> None:
    """Differentiate SOURCE: an MLIR file, `-` for stdin, or a target such as `file.py:function`."""
    if mode is None:
        raise UsageError("nothing says which derivative to take", do="give --jvp, --vjp or --grad")
    program = derive_program(load_source(source, arguments).program, mode, wrt, order)
    for pipeline in ["stage-rules"] * rules + ["to-stablehlo"] * lower:
        program.run_passes(pipeline, verify_each=True)
    if output is not None and output.suffix == ".mlirbc":
        program.save(output, allow_refusals=allow_refusals)
        return
    if program.constants:
        note(
            f"the first {len(program.constants)} arguments of @main are arrays that the function "
            "closed over; a .mlirbc file holds their values"
        )
    show_ir(program.asm()) if output is None else write(program.asm(), output)
