"""`pullback derive`: the derivative of a function or a module, as a module."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click

import pullback
from pullback._errors import UsageError
from pullback._jax import ir
from pullback.dialect.build import inexact
from pullback.passes.base import NO_RULES, Rules
from pullback.passes.differentiation import replace_terminator, set_signature, terminator
from pullback.passes.manager import run_pipeline
from pullback.passes.symbols import functions
from pullback.tools import module_io
from pullback.tools.show import note, write
from pullback.tools.targets import is_target, load_target

MODES = {
    "jvp": "jvp{{wrt={wrt}}}",
    "vjp": "vjp{{wrt={wrt}}}",
    "grad": "vjp{{wrt={wrt} unit-cotangent=true}}",
}
ENTRY = "main"


def derive_module(
    module: ir.Module,
    mode: str,
    *,
    wrt: tuple[int, ...] | None = None,
    order: int = 1,
    hidden: int = 0,
    rules: Rules = NO_RULES,
) -> None:
    """Differentiates `@main` in place, `order` times.

    Args:
      module: the module to change.
      mode: 'jvp', 'vjp' or 'grad'; a gradient's results are the cotangents alone.
      wrt: positions among the arguments after the hidden ones; by default all inexact ones.
      order: how many times to differentiate.
      hidden: the number of leading arguments that are constants.
      rules: where rules are found that the module does not hold.
    """
    for _ in range(order):
        positions = _positions(module, wrt, hidden)
        values = len(terminator(_entry(module).regions[0].blocks[0]).operands)
        if mode == "grad":
            _check_gradient(module)
        pipeline = MODES[mode].format(wrt=",".join(map(str, positions)))
        run_pipeline(module, pipeline, rules, verify_each=True)
        if mode == "grad":
            _drop_results(module, values)
            run_pipeline(module, "erase-dead", rules, verify_each=True)


def _entry(module: ir.Module) -> Any:
    found = functions(module).get(ENTRY)
    if found is None:
        raise UsageError(f"the module has no function @{ENTRY}", do="name the entry `main`")
    return found


def _positions(module: ir.Module, wrt: tuple[int, ...] | None, hidden: int) -> list[int]:
    if wrt is not None:
        return [hidden + position for position in wrt]
    arguments = _entry(module).regions[0].blocks[0].arguments
    return [i for i in range(hidden, len(arguments)) if inexact(arguments[i].type)]


def _check_gradient(module: ir.Module) -> None:
    results = [value.type for value in terminator(_entry(module).regions[0].blocks[0]).operands]
    if len(results) == 1 and not ir.RankedTensorType(results[0]).shape and inexact(results[0]):
        return
    raise UsageError(
        f"--grad needs a function with one scalar result, and @{ENTRY} gives "
        f"({', '.join(map(str, results))})",
        do="use --vjp, which takes the cotangents as arguments",
    )


def _drop_results(module: ir.Module, count: int) -> None:
    """Leaves out the first results of the entry."""
    function = _entry(module)
    block = function.regions[0].blocks[0]
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    with module.context:
        replace_terminator(block, list(terminator(block).operands)[count:])
        set_signature(function)


def _parse_positions(context: Any, parameter: Any, text: str | None) -> tuple[int, ...] | None:
    del context, parameter
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not positions such as 0,1") from None


@click.command()
@click.argument("source")
@click.option("--jvp", "mode", flag_value="jvp", help="(args, tangents) -> (results, tangents).")
@click.option(
    "--vjp", "mode", flag_value="vjp", help="(args, cotangents) -> (results, cotangents)."
)
@click.option("--grad", "mode", flag_value="grad", help="(args) -> (gradients) of a scalar result.")
@click.option("--args", "arguments", help="Argument types of a target, such as 'f32[8,128]'.")
@click.option(
    "--wrt",
    callback=_parse_positions,
    help="Positions of the arguments to differentiate, such as 0,1; all floats by default.",
)
@click.option("--order", type=click.IntRange(1), default=1, show_default=True)
@click.option("--rules", is_flag=True, help="Stage the rules that a further derivative needs.")
@click.option("--lower", is_flag=True, help="Lower the result to pure StableHLO.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the module here; as bytecode if the name ends in .mlirbc.",
)
def derive(
    source: str,
    mode: str | None,
    arguments: str | None,
    wrt: tuple[int, ...] | None,
    order: int,
    rules: bool,
    lower: bool,
    output: Path | None,
) -> None:
    """Differentiate SOURCE: an MLIR file, `-` for stdin, or a target such as `file.py:function`."""
    if mode is None:
        raise UsageError("nothing says which derivative to take", do="give --jvp, --vjp or --grad")
    module, table, hidden = _load(source, arguments)
    derive_module(module, mode, wrt=wrt, order=order, hidden=hidden, rules=table)
    if hidden:
        note(f"the first {hidden} arguments are arrays that the function closed over")
    for pipeline in ["stage-rules"] * rules + ["to-stablehlo"] * lower:
        run_pipeline(module, pipeline, table, verify_each=True)
    write(_content(module, output), output)


def _load(source: str, arguments: str | None) -> tuple[ir.Module, Rules, int]:
    if is_target(source):
        target = load_target(source, arguments)
        program = target.call(pullback.trace(target.function))
        return program.module, program.rules, len(program.constants)
    if arguments is not None:
        raise UsageError(f"--args is for targets, and `{source}` is a module")
    try:
        return module_io.parse_module(module_io.read_bytes(source)), NO_RULES, 0
    except ir.MLIRError as error:
        raise UsageError(f"`{source}` does not parse: {error}") from error


def _content(module: ir.Module, output: Path | None) -> str | bytes:
    if output is None or output.suffix != ".mlirbc":
        return module.operation.get_asm(assume_verified=True)
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()
