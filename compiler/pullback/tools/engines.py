"""What `pullback run` runs, with which values, and on which engine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pullback
import pullback_runtime
from pullback import Program, _jax
from pullback._errors import UsageError
from pullback.tools.arguments import random_array
from pullback.tools.targets import Target, is_target, load_target
from pullback_runtime import _module

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Source:
    """A module to run, and the target and program that it comes from, if it is one's.

    Attributes:
      content: the module, its text or its bytecode.
      avals: shape and dtype of each argument that the user gives.
    """

    content: Any
    avals: tuple[Any, ...]
    target: Target | None = None
    program: Program | None = None

    @property
    def hidden(self) -> Sequence[Any]:
        """Arrays that the traced function closed over: they come before the user's arguments."""
        return self.program.constants if self.program else ()


def load_source(spec: str, arguments: str | None) -> Source:
    """Reads `-`, an MLIR file, or traces a target."""
    if is_target(spec):
        target = load_target(spec, arguments)
        program = target.call(pullback.trace(target.function))
        avals = _signature(program.module)[len(program.constants) :]
        return Source(program.module, avals, target, program)
    if arguments is not None:
        raise UsageError(f"--args is for targets, and `{spec}` is a module", do="leave --args out")
    content = sys.stdin.buffer.read() if spec == "-" else _module.read(Path(spec))
    return Source(content, _signature(content))


def _signature(content: Any) -> tuple[Any, ...]:
    return _module.prepare(_module.read(content)).in_avals


def argument_values(source: Source, inputs: Sequence[Path], seed: int | None) -> Arrays:
    """The arrays to run with: from files, random, or the example arguments of a target."""
    if inputs and seed is not None:
        raise UsageError("--input and --random exclude each other", do="leave one of them out")
    if inputs:
        return _read_back([array for path in inputs for array in _load(path)], source.avals)
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
    return [np.asarray(_jax.physical(value), aval.dtype) for value, aval in pairs]


def _load(path: Path) -> Arrays:
    try:
        loaded = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(
            f"cannot read the input `{path}`: {error}", do="write it by numpy.save or numpy.savez"
        ) from error
    return [loaded] if isinstance(loaded, np.ndarray) else [loaded[name] for name in loaded.files]


def _read_back(arrays: Arrays, avals: Sequence[Any]) -> Arrays:
    """NumPy files hold bfloat16 and its kin as raw bytes; the signature knows what they are."""
    for index, aval in enumerate(avals[: len(arrays)]):
        dtype = arrays[index].dtype
        if dtype.kind == "V" and dtype.itemsize == aval.dtype.itemsize:
            arrays[index] = arrays[index].view(aval.dtype)
    return arrays


def run_xla(source: Source, values: Arrays, backend: str) -> Arrays:
    """Results of XLA on a backend."""
    if source.program is None:
        results = pullback_runtime.compile(source.content, backend=backend)(*values)
        return list(map(np.asarray, results))
    arguments, keywords = _arguments(source.program, values)
    return _leaves(source.program.compile(backend=backend)(*arguments, **keywords))


def run_interpreter(source: Source, values: Arrays) -> Arrays:
    """Results of StableHLO's reference interpreter."""
    return list(pullback_runtime.run_interpreted(source.content, *source.hidden, *values))


def run_jax(source: Source, values: Arrays) -> Arrays:
    """Results of plain JAX, without anything of ours."""
    if source.target is None or source.program is None:
        raise UsageError("--jax needs a target, for a module has no Python function")
    arguments, keywords = _arguments(source.program, values)
    return _leaves(jax.jit(source.target.function)(*arguments, **keywords))


def _arguments(program: Program, values: Arrays) -> Any:
    """`(args, kwargs)` of a program from the flat arrays that its module takes."""
    leaves = map(_jax.logical, values, program.in_avals)
    return jax.tree.unflatten(program.in_tree, leaves)


def _leaves(results: Any) -> Arrays:
    return [np.asarray(_jax.physical(leaf)) for leaf in jax.tree.leaves(results)]
