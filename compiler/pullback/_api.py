"""The transformations: JAX's names and signatures, on functions and on Programs.

Each one traces the function, derives a new Program in the IR, and calls it through one JAX
primitive under `jax.jit`. So a second call with arguments of the same types costs what a call of a
jitted function costs, and the results compose with each other and with JAX's transformations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from pullback import _calls
from pullback._program import Program
from pullback.frontend.trace import trace

PROGRAM_OF = "_pullback_program_of"
"""The attribute of a function made here that gives its Program for arguments."""


def program_of(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    """The Program of a function for such arguments; functions made here need not be traced."""
    if isinstance(fun, Program):
        fun.flatten(args, kwargs)
        return fun
    known = getattr(fun, PROGRAM_OF, None)
    return trace(fun)(*args, **kwargs) if known is None else known(*args, **kwargs)


def _transformed(fun: Callable[..., Any], derive: Callable[[Program], Program]) -> Any:
    """A jitted function that calls the program derived from that of `fun`."""

    def derived_program(*args: Any, **kwargs: Any) -> Program:
        return derive(program_of(fun, args, kwargs))

    @functools.wraps(fun, updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        return _calls.apply(derived_program(*args, **kwargs), args, kwargs)

    jitted = jax.jit(function)
    setattr(jitted, PROGRAM_OF, derived_program)
    return jitted


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """The gradient of a function with a scalar result; as `jax.grad`."""
    return _transformed(
        fun, lambda program: program.grad(argnums, has_aux, holomorphic, allow_int)
    )


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """The value and the gradient of a function with a scalar result; as `jax.value_and_grad`."""
    return _transformed(
        fun, lambda program: program.value_and_grad(argnums, has_aux, holomorphic, allow_int)
    )
