"""Run `pullback run`: a module or a function, on XLA, in the interpreter, or both."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

from pullback import Program
from pullback.errors import UsageError
from pullback.program.record import here
from pullback.tools import engines
from pullback.tools.inputs import Arrays
from pullback.tools.show import note, working
from pullback.tools.sources import (
    check_used,
    load_source,
)
from pullback.tools.targets import naming

FAILED = 1
FRAME = re.compile(r'File "([^"]+)", line (\d+), in (.+)')


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest absolute difference; equal NaNs and infinities do not differ."""
    if one.size == 0:
        return 0.0
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(one - other))
    return float(np.where(np.isnan(apart), np.inf, apart).max())


def report(results: dict[str, Arrays]) -> float | None:
    """Print the results of each engine side by side; return the largest difference."""
    (first, *others) = results
    width = max(len(engine) for engine in [*results, "difference"])
    largest = 0.0
    for index, array in enumerate(results[first]):
        aval = jax.core.ShapedArray(array.shape, array.dtype)
        click.echo(f"result {index}: {aval.str_short(short_dtypes=True)}")
        for engine in results:
            label = f"{engine:{width}}  " if others else ""
            click.echo(f"  {label}{_text(results[engine][index])}")
        if others:
            apart = max(difference(array, results[other][index]) for other in others)
            click.echo(f"  {'difference':{width}}  {apart:.3g}")
            largest = max(largest, apart)
    if not others:
        return None
    click.echo(f"largest difference of {' and '.join(results)}: {largest:.3g}")
    return largest


def _text(array: np.ndarray) -> str:
    shown = array.astype(np.float32) if array.dtype.kind == "V" else array
    line = np.array2string(shown, precision=6, threshold=8, edgeitems=3, max_line_width=10**6)
    return " ".join(line.split())


def save(arrays: Arrays, output: Path) -> None:
    """Write `result_0`, `result_1`, … into one .npz file."""
    if output.suffix != ".npz":
        raise UsageError(f"results are saved as .npz, not as `{output.name}`", do="-o out.npz")
    named: dict[str, Any] = {f"result_{index}": array for index, array in enumerate(arrays)}
    try:
        np.savez(output, **named)
    except OSError as error:
        raise UsageError(f"cannot write `{output}`: {error.strerror or error}") from error
    note(f"{output}: {len(arrays)} results")


@contextlib.contextmanager
def _running(spec: str) -> Iterator[None]:
    """Run the body and turn errors of the running program, as in callbacks, into UsageErrors."""
    try:
        with naming(spec):
            yield
    except jax.errors.JaxRuntimeError as error:
        lines = str(error).strip().splitlines()
        frames = FRAME.findall(str(error))  # of a callback, which XLA has as text
        place = "{}:{}, in {}".format(*frames[-1]) if frames else None
        said = lines[-1] if frames else lines[0]
        raise UsageError(f"`{spec}` failed as it ran: {said}", where=place) from error


def _find_nan(spec: str, program: Program, values: Arrays) -> None:
    """Print where the first NaN in a result comes from, and exit with 1 if there is one."""
    with working("looking for a NaN"):
        found = importlib.import_module("pullback.nans.search").search(
            here(program), [*program.constants, *values], infs=False
        )
    if found is None:
        click.echo("no result has a NaN")
        return
    click.echo(str(found).replace(" -:", f" {spec}:"))  # MLIR has a hyphen for any text
    raise SystemExit(FAILED)


def run(
    source: str,
    backend: str | None,
    inputs: tuple[Path, ...],
    seed: int | None,
    interpret: bool,
    compare: bool,
    with_jax: bool,
    wants_nan: bool,
    tolerance: float | None,
    output: Path | None,
    **of_source: Any,
) -> None:
    """Run SOURCE: an MLIR file, `-` for stdin, or a target such as `file.py:function`."""
    if not (compare or with_jax):
        check_used("--compare or --jax", {"--tolerance": tolerance})
    if interpret and not compare:
        check_used("--compare, for the interpreter is no backend", {"--backend": backend})
    if wants_nan:
        unused: dict[str, Any] = {
            "--backend": backend,
            "--interpret": interpret,
            "--compare": compare,
        }
        unused |= {"--jax": with_jax, "--output": output}
        check_used("results, which --find-nan does not give", unused)
    loaded = load_source(source, **of_source)
    program, values = engines.argument_values(loaded, inputs, seed)
    if wants_nan:
        with _running(source):
            _find_nan(source, program, values)
        return
    chosen: dict[str, Callable[[], Arrays]] = {}
    if compare or not interpret:
        chosen["xla"] = lambda: engines.run_xla(program, values, backend)
    if compare or interpret:
        chosen["interpreter"] = lambda: engines.run_interpreter(program, values)
    if with_jax:
        chosen["jax"] = lambda: engines.run_jax(loaded, program, values)
    results: dict[str, Arrays] = {}
    for name, engine in chosen.items():
        with _running(source), working(f"running on {name}"):
            results[name] = engine()
    if output is not None:
        save(next(iter(results.values())), output)
    if output is None or len(results) > 1:
        apart = report(results)
        if tolerance is not None and apart is not None and not apart <= tolerance:
            note(f"the difference is larger than {tolerance:.3g}")
            raise SystemExit(FAILED)
