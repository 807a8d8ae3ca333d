"""A while loop with a bound, which reverse mode can differentiate in time and memory it knows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pullback._jax import primitives
from pullback.errors import ArgumentMismatchError
from pullback_runtime.call._arguments import spell


def bounded_while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any, max_steps: int
) -> Any:
    """Run a loop that stops after `max_steps` iterations at the latest; else `jax.lax.while_loop`.

    The bound goes into the IR, as `pullback.max_trip_count` on the loop. So reverse mode stores
    what it needs of each iteration in buffers of `max_steps` slots. Without a bound it stores
    some states only and computes the others again: less memory, more time.

    Args:
      cond_fun: tells whether to go on, a scalar bool, from the loop's value.
      body_fun: computes the next value from the present one, of the same structure, shapes and
        dtypes.
      init_val: the first value, a pytree of arrays.
      max_steps: a Python integer; the loop ends there even where `cond_fun` still holds.

    Returns: the last value.

    Raises:
      ArgumentMismatchError: `max_steps` is negative, or `cond_fun` returns no scalar bool.

    Example:

    >>> def newton(a):
    ...     return bounded_while_loop(
    ...         lambda x: jnp.abs(x * x - a) > 1e-3, lambda x: (x + a / x) / 2, a, 20)
    >>> print(f"{newton(9.0):.3f}")
    3.000
    """
    max_steps = operator.index(max_steps)  # of a traced value, JAX says what is wrong
    if max_steps < 0:
        raise ArgumentMismatchError(
            f"max_steps must not be negative, but it is {max_steps}",
            where="pb.bounded_while_loop",
            do="give the largest number of iterations that is allowed",
        )

    def proceed(state: tuple[Any, Any]) -> Any:
        step, value = state
        goes_on = cond_fun(value)
        returned = jax.tree.map(lambda leaf: spell(jax.typeof(leaf)), goes_on)
        if returned != "bool[]":
            raise ArgumentMismatchError(
                f"cond_fun must return a boolean scalar, but it returned {returned}",
                where="pb.bounded_while_loop",
                do="compare: `lambda value: value < bound`",
            )
        return primitives.trip_bound(step < max_steps, max_steps) & goes_on

    def advance(state: tuple[Any, Any]) -> Any:
        step, value = state
        return step + 1, body_fun(value)

    return jax.lax.while_loop(proceed, advance, (jnp.int32(0), init_val))[1]
