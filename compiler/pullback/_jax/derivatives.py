"""Tangents and cotangents: symbolic zeros, and JAX's rules for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import api as _api
from jax._src.interpreters.ad import CustomVJPException as CustomVJPException
from jax.interpreters import ad as _ad

from pullback._jax import hijax, jaxprs


def is_zero(value: object) -> bool:
    """Return True if a value is a symbolic zero of JAX: a tangent or cotangent known to be zero."""
    return isinstance(value, (_ad.Zero, jax.custom_derivatives.SymbolicZero))


def zeros_of(aval: Any) -> Any:
    """Return an array of zeros: the cotangent of a value of this type."""
    return _ad.instantiate_zeros(_ad.Zero(aval.to_ct_aval()))


def _marker(name: str) -> Any:
    """Make a marker class like JAX 0.12's."""
    made = dataclasses.make_dataclass(name, (), frozen=True, slots=True)
    return jax.tree_util.register_dataclass(made)


NotNeeded = getattr(_api, "NotNeeded", None) or _marker("NotNeeded")
"""Stands for an argument that a map of cotangents does not need."""

NotSaveable = getattr(_api, "NotSaveable", None) or _marker("NotSaveable")
"""Stands for an argument that a map of cotangents needs, and was told not to save."""


def has_logs(returned: Any) -> bool:
    """Return True if a backward rule returned a pair of cotangents and logs (a dictionary or None).

    Rules do so since JAX 0.11. Any other pair is a tuple of two cotangents.
    """
    pair = isinstance(returned, tuple) and len(returned) == 2
    return pair and (returned[1] is None or isinstance(returned[1], dict))


def with_no_cotangents(avals: Sequence[Any], returned: Any) -> Any:
    """Prepend symbolic zeros, for operands of these types, to a backward rule's cotangents."""
    zeros = [_ad.Zero(aval) for aval in avals]
    if has_logs(returned):
        cotangents, logs = returned
        return [*zeros, *cotangents], logs
    return [*zeros, *returned]


def has_tangents_of_its_own(aval: Any) -> bool:
    """Return True if a dtype is an extended one with tangents; that of PRNG keys has none."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype):
        return False
    tangent = getattr(dtype._rules, "tangent_dtype", lambda dtype: dtype)
    return bool(tangent(dtype) != jax.dtypes.float0)


def has_transpose(equation: Any) -> bool:
    """Return True if JAX has a transpose rule for the primitive of an equation.

    `custom_jvp_call` does not count: its rule transposes the function that is called.
    """
    if jaxprs.name_of(equation) == "call_hi_primitive":
        return "transpose" in hijax.rules_of(equation)
    return jaxprs.name_of(equation) != "custom_jvp_call" and (
        equation.primitive in _ad.primitive_transposes
    )


def run_transpose(
    equation: Any, operands: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """Run the transpose rule of a primitive, and return the cotangents of its operands.

    Args:
      operands: of the equation, None for those to transpose with respect to.
      cotangents: of its results, None for a symbolic zero.
    """
    given = [
        _ad.UndefinedPrimal(atom.aval) if value is None else value
        for atom, value in zip(equation.invars, operands, strict=True)
    ]
    cts = [
        _ad.Zero(var.aval.to_ct_aval()) if ct is None else ct
        for var, ct in zip(equation.outvars, cotangents, strict=True)
    ]
    rule = _ad.primitive_transposes[equation.primitive]
    given_cts = cts if equation.primitive.multiple_results else cts[0]
    found: Sequence[Any] = rule(given_cts, *given, **equation.params)
    return found


def rules_of(primitive: Any) -> tuple[Any, ...]:
    """Return JAX's JVP rule and transpose rule of a primitive; None for one that it lacks."""
    return _ad.primitive_jvps.get(primitive), _ad.primitive_transposes.get(primitive)
