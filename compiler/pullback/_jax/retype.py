"""Evaluate a jaxpr in 64-bit floats, whatever float types it was traced with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback._jax import holders, jaxprs

TYPED = ("pure_callback", "io_callback", "ffi_call", "call_hi_primitive", "pallas_call")
"""Primitives that compute with the types they were traced for."""


class NotRetypedError(Exception):
    """Raised for an equation that computes with the types it was traced for."""


def wide(dtype: Any) -> Any:
    """Return the 64-bit float or complex type for a float or complex type; others as they are."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if jnp.issubdtype(dtype, jnp.floating) else dtype


def widened(value: Any) -> Any:
    """Return a value with its floats as 64-bit floats."""
    dtype = getattr(value, "dtype", np.result_type(value))
    is_float = jnp.issubdtype(dtype, jnp.inexact)
    return jnp.asarray(value, wide(dtype)) if is_float else value


def evaluate(closed: Any, operands: Sequence[Any]) -> list[Any]:
    """Evaluate a closed jaxpr with all floats in 64 bits; call it under `jax.enable_x64`.

    Casts to narrower floats, and explicit reductions of precision, do nothing.

    Raises:
      NotRetypedError: an equation computes with the types it was traced for.
    """
    jaxpr = jaxprs.opened(closed)
    values = dict(zip(jaxpr.invars, map(widened, operands), strict=True))
    values |= {variable: widened(value) for variable, value in jaxprs.constants_of(closed)}

    def read(atom: Any) -> Any:
        return widened(atom.val) if isinstance(atom, jaxprs.Literal) else values[atom]

    for equation in jaxpr.eqns:
        found = _equation(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, map(widened, found), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(equation: Any, operands: list[Any]) -> Sequence[Any]:
    name = jaxprs.name_of(equation)
    if name in TYPED:
        raise NotRetypedError(name)
    if name == "reduce_precision":
        return operands
    if (body := holders.called_function(equation)) is not None:
        return evaluate(jaxprs.close(body), operands)
    params = dict(equation.params)
    if any(jnp.issubdtype(jax.typeof(each).dtype, jnp.inexact) for each in operands):
        params = {key: _parameter(value) for key, value in params.items()}
    found = equation.primitive.bind(*operands, **params)
    return found if equation.primitive.multiple_results else [found]


def _parameter(value: Any) -> Any:
    """Return a parameter with types of floats, and the jaxprs in it, in 64 bits."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return wide(value) if jnp.issubdtype(value, jnp.inexact) else value
    return jaxprs.map_jaxprs(_body, value)


def _body(body: Any) -> Any:
    avals = [var.aval for var in jaxprs.inputs_of(body)]
    structs = [jax.ShapeDtypeStruct(aval.shape, wide(aval.dtype)) for aval in avals]
    closed = jax.make_jaxpr(lambda *values: evaluate(jaxprs.close(body), values))(*structs)
    if jaxprs.close(body) is body:
        return closed
    if closed.consts:
        raise NotRetypedError("an open jaxpr with constants")
    return jaxprs.opened(closed)
