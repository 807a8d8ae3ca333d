"""Run `pullback derive`: save or print the derivative of a function or a saved program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal

import pullback
from pullback._jax.tangent_types import is_inexact
from pullback.errors import PullbackError, UsageError
from pullback.passes.as_run import as_run
from pullback.program.record import positions_by_argument
from pullback.program.symbolic import SymbolicProgram
from pullback.tools.plugins import load_rules
from pullback.tools.show import note, show_ir, working, write, writing
from pullback.tools.sources import (
    Source,
    check_used,
    load_source,
)
from pullback.tools.targets import blaming, naming
from pullback_runtime.call._arguments import spell

Positions = int | tuple[int, ...] | None

# Mode -> the derivative with respect to arguments at these positions, with a memory budget.
MODES: dict[str, Callable[[Any, Positions, str | None], Any]] = {
    "jvp": lambda program, wrt, _: program.jvp(wrt),
    "vjp": lambda program, wrt, memory: program.vjp(wrt, memory=memory),
    "grad": lambda program, wrt, memory: program.grad(0 if wrt is None else wrt, memory=memory),
    "sparse-jacobian": lambda program, wrt, _: program.sparse_jacobian(0 if wrt is None else wrt),
    "sparse-hessian": lambda program, wrt, _: program.sparse_hessian(0 if wrt is None else wrt),
}

SPARSE = "sparse-jacobian", "sparse-hessian"


def derive_program(
    program: Any, mode: str, wrt: Positions = None, order: int = 1, memory: str | None = None
) -> Any:
    """Apply the same transformation `order` times; the budget is for the last one."""
    for number in range(1, order + 1):
        try:
            program = MODES[mode](program, wrt, memory if number == order else None)
        except PullbackError as error:
            if number > 1 and error.where is None:
                error.where = f"derivative {number} of {order}, of what the one before returns"
            raise
    return program


def _one_mode(given: dict[str, bool], batch: int | None) -> str | None:
    modes = [mode for mode in given if given[mode]]
    if not modes and batch is not None:
        return None
    if len(modes) == 1:
        return modes[0]
    flags = " and ".join(f"--{mode}" for mode in modes)
    what = (
        f"{flags} are different derivatives" if modes else "nothing says which derivative to take"
    )
    raise UsageError(
        what,
        do=f"give one of {', '.join(f'--{name}' for name in given)}, or --vmap for a batch alone",
    )


def _check_movable(program: Any, wrt: Positions) -> None:
    """Raise UsageError for a position of an argument that has no derivative at all."""
    count = len(program.in_tree.children()[0].children())
    places = positions_by_argument(program.in_tree, 0)[:count]
    for number in () if wrt is None else wrt if isinstance(wrt, tuple) else (wrt,):
        leaves = places[number] if -count <= number < count else range(0)
        avals = [program.in_avals[leaf] for leaf in leaves]
        if avals and not any(map(is_inexact, avals)):
            raise UsageError(
                f"argument {number} has no derivative: it is {spell(avals[0])}",
                where=program.arg_paths[leaves[0]],
                do="name arguments of a float or complex type in --wrt",
            )


def _check_used(
    mode: str | None, batch: int | None, wrt: Positions, order: int | None, in_axes: Any
) -> None:
    """Raise UsageError for an option that has no effect with this derivative, or without one."""
    if mode is None:
        check_used("one of --jvp, --vjp and --grad", {"--wrt": wrt, "--order": order})
    if mode in (*SPARSE, "jet"):
        check_used("--jvp, --vjp or --grad", {"--order": order})
    if batch is None:
        check_used("--vmap", {"--in-axes": in_axes})


def _check_together(mode: str | None, explain: bool, as_json: bool, given: dict[str, bool]) -> None:
    """Raise UsageError for options that do not go together."""
    if mode not in ("vjp", "grad"):
        check_used("--vjp or --grad", {"--memory": given["--memory"]})
    if not explain:
        check_used("--explain", {"--json": as_json})
    elif mode not in ("vjp", "grad") or any(given.values()):
        raise UsageError(
            "--explain is about reverse mode, and prints no module",
            do=f"give it with --vjp or --grad, without {', '.join(given)}",
        )
    if given["--rules"] and given["--lower"]:
        raise UsageError(
            "--lower takes away the rules that --rules stages", do="leave out one of them"
        )


def _explain(program: Any, mode: str | None, wrt: Positions, order: int, as_json: bool) -> None:
    """Print what the last of `order` derivatives stores, and what XLA allocates for it."""
    assert mode is not None
    before = derive_program(program, mode, wrt, order - 1)
    positions = 0 if wrt is None and mode == "grad" else wrt
    table = before.split_vjp(positions).residuals()
    if as_json:
        click.echo(table.to_json())
        return
    click.echo(str(table))
    used = MODES[mode](before, wrt, None).compile().memory().temporaries
    click.echo(
        f"XLA, for the {mode} as a whole: {decimal(used)} of temporaries; it may keep values in "
        "buffers of results, and compute others again"
    )


def _beside(name: str | None, entry: str | None, loaded: Source) -> dict[str, Any]:
    """Return the entries that a file gets beside a new one of this name: those of the source."""
    if name is None:
        return {}
    entries = {**loaded.program.entries} or {entry or "main": loaded.program}
    if name in entries:
        raise UsageError(
            f"`{loaded.spec}` has an entry `{name}` already",
            where=f"its entries: {', '.join(entries)}",
            do="give --entry-name another name",
        )
    return entries


def _save(
    program: Any, output: Path, allow_refusals: bool, name: str | None, entries: dict[str, Any]
) -> None:
    """Save a program by itself, or as the last of these entries if it has a name."""
    if name is None:
        program.save(output, allow_refusals=allow_refusals)
    else:
        entries[name] = program
        pullback.save_all(output, allow_refusals=allow_refusals, **entries)


def derive(
    source: str,
    jvp: bool,
    vjp: bool,
    grad: bool,
    sparse_jacobian: bool,
    sparse_hessian: bool,
    jet: int | None,
    wrt: Positions,
    order: int | None,
    batch: int | None,
    in_axes: Any,
    plugins: tuple[str, ...],
    rules: bool,
    lower: bool,
    memory: str | None,
    explain: bool,
    as_json: bool,
    allow_refusals: bool,
    entry_name: str | None,
    output: Path | None,
    **of_source: Any,
) -> None:
    """Differentiate or batch SOURCE: an MLIR file, `-`, or a target such as `file.py:function`."""
    load_rules(plugins)
    given = jvp, vjp, grad, sparse_jacobian, sparse_hessian, jet is not None
    mode = _one_mode(dict(zip([*MODES, "jet"], given, strict=True)), batch)
    _check_used(mode, batch, wrt, order, in_axes)
    saved = output is not None and output.suffix == ".mlirbc"
    if not saved:
        of_files = {"--allow-refusals": allow_refusals, "--entry-name": entry_name}
        check_used("-o FILE.mlirbc, a saved program", of_files)
    wanting = {"--vmap": batch is not None, "--rules": rules, "--lower": lower}
    others = {"--memory": memory is not None, "-o": output is not None}
    _check_together(mode, explain, as_json, {**wanting, **others})
    loaded = load_source(source, **of_source)
    entries = _beside(entry_name, of_source["entry"], loaded)
    program = loaded.program
    sparse = {f"--{name}": name == mode for name in SPARSE}
    for option in filter({**sparse, **wanting, **others}.get, [*sparse, *wanting, "--memory"]):
        program = loaded.fixed(option)
    _check_movable(program, wrt)
    if explain:
        with blaming(source), working(f"differentiating {source}"):
            _explain(loaded.fixed("--explain"), mode, wrt, order or 1, as_json)
        return
    with blaming(source), working(f"deriving {source}"):
        if jet is not None:
            program = program.jet(jet, wrt)
        elif mode is not None:
            program = derive_program(program, mode, wrt, order or 1, memory)
        if batch is not None:
            axes = in_axes or (0,)  # a single one is for all arguments
            program = program.vmap(axes if len(axes) > 1 else axes[0], axis_size=batch)
        for pipeline in ["stage-rules"] * rules + ["to-stablehlo"] * lower:
            program = program.run_passes(pipeline, verify_each=True)
    if output is not None and saved:
        with naming(source), writing(output), working(f"saving {output}"):
            _save(program, output, allow_refusals, entry_name, entries)
        return
    if program.constants:
        note(
            f"the first {len(program.constants)} arguments of @main are arrays that the function "
            "closed over; a .mlirbc file holds their values"
        )
    if isinstance(program, SymbolicProgram):
        note("what has symbolic dimensions has no rules as text; a .mlirbc file holds them")
    else:
        # Raises: who reads the text may take NaN for the value of a map.
        as_run(program.module, simplify=False)
    show_ir(program.asm()) if output in (None, Path("-")) else write(program.asm(), output)
