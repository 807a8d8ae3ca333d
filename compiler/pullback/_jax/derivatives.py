"""Tangents and cotangents: which are zero, and what has any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import custom_derivatives as _custom_derivatives
from jax._src.interpreters import ad as _ad


def is_zero(value: object) -> bool:
    """Whether this stands for a tangent or cotangent that is zero."""
    return isinstance(value, (_ad.Zero, _custom_derivatives.SymbolicZero))


def with_no_cotangents(avals: Sequence[Any], returned: Any) -> Any:
    """What a backward rule returned, with zeros for so many operands more before it.

    JAX 0.12 has it return more than the cotangents.
    """
    zeros = [_ad.Zero(aval) for aval in avals]
    if isinstance(returned, tuple):
        cotangents, *more = returned
        return [*zeros, *cotangents], *more
    return [*zeros, *returned]


def has_tangents_of_its_own(aval: Any) -> bool:
    """Whether a value's elements are no numbers of NumPy's, yet have tangents; keys have none."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype):
        return False
    tangent = getattr(dtype._rules, "tangent_dtype", lambda dtype: dtype)
    return bool(tangent(dtype) != jax.dtypes.float0)


def has_transpose(primitive: str, known: Any = _ad.primitive_transposes) -> bool:
    """Whether JAX has a transpose rule for the primitive of this name."""
    return any(each.name == primitive for each in known)


CustomVJPException = _ad.CustomVJPException
"""What JAX raises where a `custom_vjp` function is differentiated by what it closes over."""
