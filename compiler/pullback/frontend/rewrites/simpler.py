"""Equations with simpler rules in the place of others that lower to the same."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from pullback._jax import equations_as_calls, hijax, jaxprs, source_info, tracing, user_rules
from pullback.frontend.rewrites import pallas_kernels


def in_simpler_terms(equation: Any, jaxpr: Any) -> Any:
    """Return an equation of a jaxpr, or one with a simpler rule that lowers to the same."""
    return _SIMPLER[jaxprs.name_of(equation)](equation, jaxpr) if may_be(equation) else equation


def may_be(equation: Any) -> bool:
    """True for a primitive some of whose equations are written in simpler terms."""
    return jaxprs.name_of(equation) in _SIMPLER


def _square_as_product(equation: Any, jaxpr: Any) -> Any:
    """A real square as a product, which needs no rule."""
    if np.issubdtype(equation.invars[0].aval.dtype, np.complexfloating):
        return equation
    both = [equation.invars[0]] * 2
    return equation.replace(primitive=jax.lax.mul_p, invars=both, params={})


def _without_unused_aux(equation: Any, jaxpr: Any) -> Any:
    """A linear solve without its auxiliary results, where nothing uses them.

    JAX solves for a tangent with the same function, and leaves the auxiliary results there. They
    need not be linear in the right-hand side, and JAX's transpose rule takes no cotangents of them.
    """
    functions = equation.params["jaxprs"]
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
    """The variables that the equations of a jaxpr read, and those that it returns."""
    read = [atom for equation in jaxpr.eqns for atom in equation.invars]
    atoms = [*jaxprs.outputs_of(jaxpr), *read]
    return {atom for atom in atoms if not isinstance(atom, jaxprs.Literal)}


def _interpreted_kernel(equation: Any, jaxpr: Any) -> Any:
    """A kernel that is lowered to loops as a call of them."""
    return pallas_kernels.as_call(equation)


def _unpartitioned(equation: Any, jaxpr: Any) -> Any:
    """A function that says how it is partitioned, as it is on one device."""
    call = equation.params["call"]
    return equations_as_calls.as_jitted(
        equation, tracing.equations_to_function(call), "partitioned"
    )


def _bessel_of_all(equation: Any, jaxpr: Any) -> Any:
    """I₁ of a batch as that of all its numbers at once.

    The rule of its rule ignores its argument: batched apart from its function, they misfit.
    """
    debug_info = jaxprs.opened(jaxpr).debug_info
    if user_rules.rule_name(equation) not in _BESSEL or source_info.is_of_user(
        jaxprs.equation_alone(equation, debug_info)
    ):
        return equation
    return equations_as_calls.as_call(equation, jax.scipy.special.i1, debug_info)


_BESSEL = ("i1_impl", "_i1")
"""The function of JAX's that I₁ is, in jax 0.11 and 0.12."""


def _high_in_simpler_terms(equation: Any, jaxpr: Any) -> Any:
    """A call in JAX's newer encoding; a name for a value as one in the other."""
    return _bessel_of_all(hijax.with_name(equation), jaxpr)


_SIMPLER = {
    "custom_jvp_call": _bessel_of_all,
    "call_hi_primitive": _high_in_simpler_terms,
    "square": _square_as_product,
    "custom_linear_solve": _without_unused_aux,
    "pallas_call": _interpreted_kernel,
    "custom_partitioning": _unpartitioned,
}
