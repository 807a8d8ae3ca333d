"""Rewrites of equations into others that lower to the same and have simpler rules."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from pullback._jax import equations_as_calls, hijax, holders, jaxprs, tracing
from pullback._jax.reads import parameter
from pullback.frontend.rewrites import pallas_kernels


def in_simpler_terms(equation: Any, jaxpr: Any) -> Any:
    """Return an equation of a jaxpr, or another that lowers to the same and has a simpler rule."""
    return _SIMPLER[jaxprs.name_of(equation)](equation, jaxpr) if may_be(equation) else equation


def may_be(equation: Any) -> bool:
    """Return True for a primitive with equations that `in_simpler_terms` rewrites."""
    return jaxprs.name_of(equation) in _SIMPLER


def _square_as_product(equation: Any, jaxpr: Any) -> Any:
    """Rewrite a real square as a product, which needs no rule."""
    if np.issubdtype(equation.invars[0].aval.dtype, np.complexfloating):
        return equation
    both = [equation.invars[0]] * 2
    return equation.replace(primitive=jax.lax.mul_p, invars=both, params={})


def _without_unused_aux(equation: Any, jaxpr: Any) -> Any:
    """Drop the auxiliary results of a linear solve if nothing uses them.

    JAX solves for a tangent with the same function, and leaves the auxiliary results there. They
    need not be linear in the right-hand side, and JAX's transpose rule takes no cotangents of them.
    """
    functions = parameter(equation, "jaxprs")
    count = len(functions.matvec.out_avals)
    aux = set(equation.outvars[count:])
    if not aux or not aux.isdisjoint(_used_in(jaxpr)):
        return equation
    solves = {
        name: solve and jaxprs.with_outputs(solve, jaxprs.outputs_of(solve)[:count])
        for name, solve in functions._asdict().items()
        if name in ("solve", "transpose_solve")
    }
    params = {**equation.params, "jaxprs": functions._replace(**solves)}
    return equation.replace(outvars=equation.outvars[:count], params=params)


def _used_in(jaxpr: Any) -> set[Any]:
    """Return the variables that the equations of a jaxpr read, and those that it returns."""
    read = [atom for equation in jaxpr.eqns for atom in equation.invars]
    atoms = [*jaxprs.outputs_of(jaxpr), *read]
    return {atom for atom in atoms if not isinstance(atom, jaxprs.Literal)}


def _unpartitioned(equation: Any, jaxpr: Any) -> Any:
    """Rewrite a `custom_partitioning` call as the function that one device computes."""
    call = holders.called_function(equation)
    return equations_as_calls.as_jitted(
        equation, tracing.equations_to_function(call), "partitioned"
    )


_SIMPLER = {
    "call_hi_primitive": lambda equation, _: hijax.with_name(equation),
    "square": _square_as_product,
    "custom_linear_solve": _without_unused_aux,
    "pallas_call": lambda equation, _: pallas_kernels.as_call(equation),
    "custom_partitioning": _unpartitioned,
}
