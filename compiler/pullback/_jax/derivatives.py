"""Tangents and cotangents: which are zero, and what has any."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import api as _api, custom_derivatives as _custom_derivatives
from jax._src.interpreters import ad as _ad

from pullback._jax import hijax, jaxprs


def is_zero(value: object) -> bool:
    """Whether this stands for a tangent or cotangent that is zero."""
    return isinstance(value, (_ad.Zero, _custom_derivatives.SymbolicZero))


def zeros_of(aval: Any) -> Any:
    """The zeros that are the tangent or cotangent of a float of this type."""
    return _ad.instantiate_zeros(_ad.Zero(aval.to_ct_aval()))


def _marker(name: str) -> Any:
    """A class of JAX's that stands for a value which is not there; one as JAX 0.12 has it."""
    made = dataclasses.make_dataclass(name, (), frozen=True, slots=True)
    return getattr(_api, name, None) or jax.tree_util.register_dataclass(made)


NotNeeded = _marker("NotNeeded")
"""What stands for an argument that a map of cotangents does not need."""

NotSaveable = _marker("NotSaveable")
"""What stands for an argument that a map of cotangents needs, and was told not to save."""


def has_logs(returned: Any) -> bool:
    """Whether a backward rule returned a dictionary or None beside its cotangents.

    It does so since JAX 0.11; what is a tuple may be one of cotangents.
    """
    pair = isinstance(returned, tuple) and len(returned) == 2
    return pair and (returned[1] is None or isinstance(returned[1], dict))


def with_no_cotangents(avals: Sequence[Any], returned: Any) -> Any:
    """What a backward rule returned, with zeros for so many operands more before its cotangents."""
    zeros = [_ad.Zero(aval) for aval in avals]
    if has_logs(returned):
        cotangents, logs = returned
        return [*zeros, *cotangents], logs
    return [*zeros, *returned]


def has_tangents_of_its_own(aval: Any) -> bool:
    """Whether a value's elements are no numbers of NumPy's, yet have tangents; keys have none."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype):
        return False
    tangent = getattr(dtype._rules, "tangent_dtype", lambda dtype: dtype)
    return bool(tangent(dtype) != jax.dtypes.float0)


def has_transpose(equation: Any) -> bool:
    """Whether there is a transpose rule that is not that of the function called."""
    if jaxprs.name_of(equation) == "call_hi_primitive":
        return "transpose" in hijax.rules_of(equation)
    return jaxprs.name_of(equation) != "custom_jvp_call" and (
        equation.primitive in _ad.primitive_transposes
    )


def run_transpose(
    equation: Any, operands: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """Run the transpose rule of a primitive; the cotangents of its operands.

    Args:
      operands: of the equation, None for those that it shall be linear in.
      cotangents: of its results, None for those that have none.
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
    """The rules that JAX holds for a primitive: for tangents, and for cotangents."""
    return _ad.primitive_jvps.get(primitive), _ad.primitive_transposes.get(primitive)


CustomVJPException = _ad.CustomVJPException
"""What JAX raises where a `custom_vjp` function is differentiated by what it closes over."""
