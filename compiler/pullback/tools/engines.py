"""Choose what `pullback run` runs, with which values, and run it on each engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pullback_runtime
from pullback import Program
from pullback._jax import prng_keys
from pullback.errors import UsageError
from pullback.program.record import here
from pullback.tools import inputs as files
from pullback.tools.arguments import random_array
from pullback.tools.inputs import Arrays
from pullback.tools.sources import Source
from pullback_runtime.call import _avals
from pullback_runtime.ir import _module


def signature(program: Program) -> tuple[Any, ...]:
    """Return shape and dtype of each array that the user gives; for a random key, of its data."""
    prepared = _module.prepare(_module.read(program.module))
    return prepared.in_avals[len(program.constants) :]


def argument_values(
    source: Source, inputs: Sequence[Path], seed: int | None
) -> tuple[Program, Arrays]:
    """Return the program, and arrays: from files, random, or the example arguments of a target."""
    if inputs and seed is not None:
        raise UsageError("--input and --random exclude each other", do="leave one of them out")
    if inputs:
        arrays = files.read(inputs, source.program.arg_paths, source.spec)
        program = _of_sizes(source, arrays)
        return program, files.with_dtypes(arrays, signature(program))
    program = source.fixed("running without --input")
    avals = signature(program)
    if seed is not None:
        return program, _random_values(source, avals, seed)
    return program, _example_values(source, avals)


def _of_sizes(source: Source, arrays: Arrays) -> Program:
    """Return the program for the shapes of these arrays, where dimensions are symbols."""
    program = source.program
    if isinstance(program, Program):
        return program
    if any(map(_avals.is_key, program.in_avals)):
        return source.fixed("a program of random keys, whose words are no sizes,")
    leaves = files.with_dtypes(arrays, program.in_avals)
    args, kwargs = jax.tree.unflatten(program.in_tree, leaves)
    return program.with_shapes(*args, **kwargs)


def _given(source: Source) -> list[Any]:
    """Return the leaves of a target's arguments: types, arrays and plain numbers."""
    return [] if source.target is None else jax.tree.leaves(source.target.arguments)


def _random_values(source: Source, avals: Sequence[Any], seed: int) -> Arrays:
    """Return random arrays; a plain number, as in `--args 'f32[8], 3'`, keeps its value."""
    generator = np.random.default_rng(seed)
    numbers = dict(enumerate(_given(source)))
    return [
        np.asarray(number, aval.dtype)
        if isinstance(number := numbers.get(index), bool | int | float | complex)
        else random_array(generator, aval.shape, aval.dtype)
        for index, aval in enumerate(avals)
    ]


def _example_values(source: Source, avals: Sequence[Any]) -> Arrays:
    leaves = _given(source)
    concrete = [leaf for leaf in leaves if not isinstance(leaf, jax.ShapeDtypeStruct)]
    if len(concrete) != len(avals):
        count = "1 argument" if len(avals) == 1 else f"{len(avals)} arguments"
        only_types = ", only types" if len(concrete) != len(_given(source)) else ""
        raise UsageError(
            f"there are no values for the {count}{only_types}",
            do="give --input FILE.npy for each of them, or --random SEED",
        )
    pairs = zip(concrete, avals, strict=True)
    return [np.asarray(prng_keys.physical(value), aval.dtype) for value, aval in pairs]


def run_xla(program: Program, values: Arrays, backend: str | None) -> Arrays:
    """Run on a backend of XLA, by default JAX's, and return the results."""
    program = here(program, backend)
    executable = pullback_runtime.compile(
        program.module,
        backend=backend,
        host_callbacks=program.environment.host_callbacks,
        keepalives=program.environment.keepalives,
        mesh=program.environment.mesh,
    )
    return [np.asarray(result) for result in executable(*program.constants, *values)]


def run_interpreter(program: Program, values: Arrays) -> Arrays:
    """Run in StableHLO's reference interpreter and return the results."""
    results = pullback_runtime.run_interpreted(program.module, *program.constants, *values)
    return list(results)


def run_jax(source: Source, program: Program, values: Arrays) -> Arrays:
    """Run the target in plain JAX, without this package, and return the results."""
    if source.target is None:
        raise UsageError("--jax needs a target, for a module has no Python function")
    leaves = map(prng_keys.logical, values, program.in_avals)
    arguments, keywords = jax.tree.unflatten(program.in_tree, leaves)
    results = jax.jit(source.target.function)(*arguments, **keywords)
    return [np.asarray(prng_keys.physical(leaf)) for leaf in jax.tree.leaves(results)]
