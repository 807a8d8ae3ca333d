"""`pullback run`: run a module or a function, on XLA, in the interpreter, or both."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np

import pullback
import pullback_runtime
from pullback._errors import UsageError
from pullback.tools.arguments import random_array
from pullback.tools.show import note
from pullback.tools.targets import Target, is_target, load_target
from pullback_runtime import _module

Arrays = list[np.ndarray]
FAILED = 1


@dataclass(frozen=True)
class Source:
    """What to run: a module's bytes or text, and the target that it was traced from, if any."""

    content: Any
    target: Target | None
    avals: tuple[Any, ...]


def load_source(spec: str, arguments: str | None) -> Source:
    """Reads `-`, an MLIR file, or traces a target."""
    if is_target(spec):
        target = load_target(spec, arguments)
        module = target.call(pullback.trace(target.function)).module
        return Source(module, target, _signature(module))
    if arguments is not None:
        raise UsageError(f"--args is for targets, and `{spec}` is a module", do="leave --args out")
    content = sys.stdin.buffer.read() if spec == "-" else _module.read(Path(spec))
    return Source(content, None, _signature(content))


def _signature(content: Any) -> tuple[Any, ...]:
    return _module.prepare(_module.read(content)).in_avals


def argument_values(source: Source, inputs: Sequence[Path], seed: int | None) -> Arrays:
    """The arrays to run with: from files, random, or the example arguments of a target."""
    if inputs and seed is not None:
        raise UsageError("--input and --random exclude each other", do="leave one of them out")
    if inputs:
        values = [array for path in inputs for array in _load(path)]
        return [_reinterpret(a, aval) for a, aval in zip(values, source.avals)] + values[
            len(source.avals) :
        ]
    if seed is not None:
        generator = np.random.default_rng(seed)
        return [random_array(generator, aval.shape, aval.dtype) for aval in source.avals]
    return _example_values(source)


def _example_values(source: Source) -> Arrays:
    leaves = [] if source.target is None else jax.tree.leaves(source.target.arguments)
    concrete = [leaf for leaf in leaves if not isinstance(leaf, jax.ShapeDtypeStruct)]
    if len(concrete) != len(source.avals):
        raise UsageError(
            f"there are no values for the {len(source.avals)} arguments",
            do="give --input FILE.npy for each of them, or --random SEED",
        )
    pairs = zip(concrete, source.avals, strict=True)
    return [np.asarray(value, aval.dtype) for value, aval in pairs]


def _load(path: Path) -> Arrays:
    try:
        loaded = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(
            f"cannot read the input `{path}`: {error}", do="write it by numpy.save or numpy.savez"
        ) from error
    return [loaded] if isinstance(loaded, np.ndarray) else [loaded[name] for name in loaded.files]


def _reinterpret(array: np.ndarray, aval: Any) -> np.ndarray:
    """NumPy files hold bfloat16 and its kin as raw bytes; the signature knows what they are."""
    same_size = array.dtype.itemsize == aval.dtype.itemsize
    return array.view(aval.dtype) if array.dtype.kind == "V" and same_size else array


def run_xla(source: Source, values: Arrays, backend: str) -> Arrays:
    """Results of XLA on a backend."""
    executable = pullback_runtime.compile(source.content, backend=backend)
    return [np.asarray(result) for result in executable(*values)]


def run_interpreter(source: Source, values: Arrays) -> Arrays:
    """Results of StableHLO's reference interpreter."""
    return list(pullback_runtime.run_interpreted(source.content, *values))


def run_jax(source: Source, values: Arrays) -> Arrays:
    """Results of plain JAX, without anything of ours."""
    if source.target is None:
        raise UsageError("--jax needs a target, for a module has no Python function")
    tree = jax.tree.structure(source.target.arguments)
    results = jax.jit(source.target.function)(*jax.tree.unflatten(tree, values))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(results)]


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest absolute difference; equal NaNs and infinities do not differ."""
    if one.size == 0:
        return 0.0
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(one - other))
    return float(np.where(np.isnan(apart), np.inf, apart).max())


def report(results: dict[str, Arrays]) -> float | None:
    """Prints the results of each engine side by side; returns the largest difference."""
    (first, *others) = results
    width = max(len(engine) for engine in [*results, "difference"])
    largest = 0.0
    for index, array in enumerate(results[first]):
        click.echo(f"result {index}: {_type(array)}")
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


def _type(array: np.ndarray) -> str:
    return jax.core.ShapedArray(array.shape, array.dtype).str_short(short_dtypes=True)


def _text(array: np.ndarray) -> str:
    shown = array.astype(np.float32) if array.dtype.kind == "V" else array
    line = np.array2string(shown, precision=6, threshold=8, edgeitems=3, max_line_width=10**6)
    return " ".join(line.split())


def save(arrays: Arrays, output: Path) -> None:
    """Writes `result_0`, `result_1`, … into one .npz file."""
    if output.suffix != ".npz":
        raise UsageError(f"results are saved as .npz, not as `{output.name}`", do="-o out.npz")
    named: dict[str, Any] = {f"result_{index}": array for index, array in enumerate(arrays)}
    np.savez(output, **named)
    note(f"{output}: {len(arrays)} results")


@click.command()
@click.argument("source")
@click.option("--args", "arguments", help="Argument types of a target, such as 'f32[8,128]'.")
@click.option("--backend", default="cpu", show_default=True, help="cpu, cuda, rocm or tpu.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A .npy file per argument, or .npz files with several.",
)
@click.option("--random", "seed", type=int, help="Random arguments from this seed.")
@click.option("--interpret", is_flag=True, help="Use StableHLO's interpreter instead of XLA.")
@click.option("--compare", is_flag=True, help="Run both, and report the largest difference.")
@click.option("--jax", "with_jax", is_flag=True, help="Compare a target with plain JAX.")
@click.option("--tolerance", type=float, help="Exit with 1 when a difference is larger.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Save the results in this .npz file."
)
def run(
    source: str,
    arguments: str | None,
    backend: str,
    inputs: tuple[Path, ...],
    seed: int | None,
    interpret: bool,
    compare: bool,
    with_jax: bool,
    tolerance: float | None,
    output: Path | None,
) -> None:
    """Run SOURCE: an MLIR file, `-` for stdin, or a target such as `file.py:function`."""
    loaded = load_source(source, arguments)
    values = argument_values(loaded, inputs, seed)
    engines: dict[str, Callable[[], Arrays]] = {}
    if compare or not interpret:
        engines["xla"] = lambda: run_xla(loaded, values, backend)
    if compare or interpret:
        engines["interpreter"] = lambda: run_interpreter(loaded, values)
    if with_jax:
        engines["jax"] = lambda: run_jax(loaded, values)
    results = {name: engine() for name, engine in engines.items()}
    if output is not None:
        save(next(iter(results.values())), output)
    if output is None or len(results) > 1:
        apart = report(results)
        if tolerance is not None and apart is not None and not apart <= tolerance:
            note(f"the difference is larger than {tolerance:.3g}")
            raise SystemExit(FAILED)
