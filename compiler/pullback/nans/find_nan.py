"""`find_nan`: the op in which a NaN is born."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from pullback import Program, trace
from pullback.api.transforms import program_of
from pullback.as_jax.function import check_values, converted
from pullback.errors import PullbackError
from pullback.nans.report import NanReport
from pullback.nans.search import search
from pullback.program.symbolic import SymbolicProgram

MOVING = (jax.Array, np.ndarray, np.inexact, float, complex)
"""List types of arguments that are not numbers for the code of a function to branch on."""


def find_nan(fun: Callable[..., Any], infs: bool = False) -> Callable[..., NanReport | None]:
    """Return a function that says where the first NaN comes from that reaches a result of `fun`.

    The program is run once; if no result has a NaN, that is all. Otherwise it is run again block by
    block, with every value in it at hand: effects such as prints happen again. A NaN that the
    program throws away, as by `jnp.where`, is none.

    Args:
      fun: a function that JAX can trace, a function made by `pb.grad` and the like, or a Program.
      infs: look for infinities as well: for the first op that makes one of finite operands.

    Returns:
      A function of the arguments of `fun`. It returns None, or a `NanReport`, which prints well.

    Raises:
      PullbackError: it is called while JAX traces; other processes have a part of an argument; or
        the NaN does not come again where the program runs block by block.
    """

    def found(*args: Any, **kwargs: Any) -> NanReport | None:
        check_values("find_nan", (args, kwargs))
        program, args, kwargs = _program_and_arguments(fun, args, kwargs)
        operands = program.flatten(args, kwargs)
        hidden = len(program.constants)
        given = zip(program.arg_paths, program.in_avals, operands[hidden:], strict=True)
        values = [converted(*each) for each in given]
        return search(program, [*operands[:hidden], *values], infs)

    return found


def _program_and_arguments(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Program, tuple[Any, ...], dict[str, Any]]:
    """Return the program of a function for these arguments, and what it takes of them."""
    try:
        program = program_of(fun, args, kwargs)
    except PullbackError:
        raise
    except Exception:  # by a Python value that code branches on: it becomes part of the function
        arrays, function = _of_arrays(fun, args, kwargs)
        program, args, kwargs = trace(function)(*arrays), tuple(arrays), {}
    if isinstance(program, SymbolicProgram):
        program = program.with_shapes(*args, **kwargs)
    return program, args, kwargs


def _of_arrays(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], Callable[..., Any]]:
    """Return the arrays and floats among the arguments, and the function of these alone."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    moving = [i for i, leaf in enumerate(leaves) if isinstance(leaf, MOVING)]

    def function(*arrays: Any) -> Any:
        replaced = dict(zip(moving, arrays, strict=True))
        args, kwargs = jax.tree.unflatten(
            tree, [replaced.get(i, leaf) for i, leaf in enumerate(leaves)]
        )
        return fun(*args, **kwargs)

    return [leaves[i] for i in moving], function
