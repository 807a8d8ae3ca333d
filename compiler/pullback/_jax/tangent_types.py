"""Tell by their types which values have tangents, and reject types that a module cannot hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp

from pullback._jax import derivatives, hijax
from pullback.errors import PullbackError


def is_inexact(aval: Any) -> bool:
    """Return True if values of this type have tangents: elements are floats or complex numbers."""
    dtype = getattr(aval, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


def check_tangents(values: Iterable[Any], place: str | None) -> None:
    """Raise PullbackError for a value that a module cannot hold with its tangents.

    Otherwise it would count as an integer, whose derivatives are zero.
    """
    for value in values:
        if hijax.is_type(value.aval):
            raise high_type(value.aval, place)
        if derivatives.has_tangents_of_its_own(value.aval):
            raise PullbackError(
                f"cannot trace a value of type {value.aval.dtype}: its tangents have another type",
                where=place,
                do="convert it to floats outside of the function, or differentiate by JAX",
            )


def high_type(aval: Any, place: str | None) -> PullbackError:
    """Return the error for a value of a hijax type, which a user has defined."""
    return PullbackError(
        f"cannot trace a value of type {type(aval).__name__}: it is no array, but of a type of its "
        "own (jax.experimental.hijax)",
        where=place,
        do="hand on the arrays that it is made of, in a pytree; or differentiate by JAX",
    )
