"""Tracing with symbolic dimensions: the function of leaves, and the program for given shapes."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from pullback._jax import dimensions, jaxprs, tracing
from pullback.program.record import Interface
from pullback.program.symbolic import SymbolicProgram


def traced(
    traceable: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    platforms: tuple[str, ...],
    static_argnums: Any,
    static_argnames: Any,
    of_sizes: Callable[..., Any],
) -> SymbolicProgram:
    """Trace a function under `jax.jit` for arguments with symbolic dimensions.

    Args:
      of_sizes: traces the function for arguments without symbols.
    """
    numbers, names = _statics(traceable, static_argnums, static_argnames, len(args))
    fixed = {i: arg for i, arg in enumerate(args) if i in numbers}
    named = {name: arg for name, arg in kwargs.items() if name in names}
    moving = tuple(arg for i, arg in enumerate(args) if i not in fixed)
    keywords = {name: arg for name, arg in kwargs.items() if name not in named}
    example = jax.tree.map(_struct, (moving, keywords))
    function = _with_fixed(traceable, fixed, named)
    stages = _with_fixed(traceable.trace, fixed, named)(*example[0], **example[1])
    in_tree = tracing.in_tree_of(stages)

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = jax.tree.unflatten(in_tree, leaves)
        return jax.tree.leaves(function(*args, **kwargs))

    def member(values: Mapping[str, int]) -> Any:
        args, kwargs = jax.tree.map(functools.partial(dimensions.sized, values), example)
        with settings():
            return _with_fixed(of_sizes, fixed, named)(*args, **kwargs)

    settings = tracing.settings()
    closed = stages.jaxpr
    interface = Interface(
        in_tree,
        stages.out_tree,
        tuple(jax.tree.leaves(example)),
        tuple(map(_struct, closed.out_avals)),
        jaxprs.argument_paths(closed)[-in_tree.num_leaves or len(closed.in_avals) :],
    )
    return SymbolicProgram(interface, flat, platforms, member, settings=settings)


def _statics(function: Any, argnums: Any, argnames: Any, count: int) -> tuple[set[int], set[str]]:
    """Return positions and names of static arguments; as in `jax.jit`, each may imply the other."""
    numbers = set() if argnums is None else {*np.atleast_1d(argnums).tolist()}
    names = {argnames} if isinstance(argnames, str) else {*(argnames or ())}
    with contextlib.suppress(TypeError, ValueError):  # a builtin has no signature
        parameters = inspect.signature(function).parameters
        if argnums is None:
            numbers = {i for i, name in enumerate(parameters) if name in names}
        if argnames is None:
            names = {
                name for i, name in enumerate(parameters) if {i, i - len(parameters)} & numbers
            }
    return {number % count for number in numbers if -count <= number < count}, names


def _with_fixed(
    function: Callable[..., Any], fixed: Mapping[int, Any], named: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the function of the other arguments, with these held fixed."""
    if not fixed and not named:
        return function

    def of_others(*args: Any, **kwargs: Any) -> Any:
        rest, count = iter(args), len(args) + len(fixed)
        return function(
            *(fixed[i] if i in fixed else next(rest) for i in range(count)), **kwargs, **named
        )

    return of_others


def _struct(value: Any) -> jax.ShapeDtypeStruct:
    aval = value if hasattr(value, "shape") else jax.typeof(value)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
