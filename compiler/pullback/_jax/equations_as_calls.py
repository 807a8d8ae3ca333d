"""Replace an equation with a call of a function that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import jax
from jax._src import config as _config

from pullback._jax import jaxprs, named_axes
from pullback._jax.tracing import known, remember, structs


def as_call(equation: Any, function: Callable[..., Any], debug_info: Any, *static: Hashable) -> Any:
    """Replace an equation with the single call that `function` is traced to.

    The function is ours or JAX's, and computes the same as the equation. It takes `static` after
    the operands, and is traced once for all equations of the same types.
    """
    types = tuple(atom.aval for atom in equation.invars)
    key = as_call, function, static, types, equation.ctx
    call = known().get(key)
    if call is None:
        alone = jaxprs.equation_alone(equation, debug_info)
        with named_axes.tracing_context_of(alone):
            call = _the_call(lambda *args: function(*args, *static), types)
        remember(key, call)
    return equation.replace(primitive=call.primitive, params=call.params)


def as_jitted(equation: Any, function: Callable[..., Any], name: str) -> Any:
    """Replace an equation with a jitted call of a function that computes the same."""

    def named(*args: Any) -> Any:
        return function(*args)

    named.__name__ = name
    call = _the_call(jax.jit(named), [atom.aval for atom in equation.invars])
    return equation.replace(primitive=call.primitive, params=call.params, effects=call.effects)


def _the_call(function: Callable[..., Any], types: Iterable[Any]) -> Any:
    """Trace a function that makes a single call, and return the equation of that call.

    Its operands are the function's arguments only. Eager constant folding, as under
    `jax.ensure_compile_time_eval`, would make a constant inside one more operand, so it is off.
    """
    with _config.eager_constant_folding(False):
        (call,) = jax.make_jaxpr(function)(*structs(types)).eqns
    return call
