"""Pallas kernels as what they compute: loops over their grids, with values for their references.

JAX's interpreter makes these loops. Calls that have rules stand behind a primitive of ours while it
does, for it takes it that no derivatives will be asked for, and drops the rules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax._src.state import discharge as _discharge

from pullback._jax import jaxprs, references, source_info, tracing, user_rules
from pullback._jax.lowering import has_lowering


class NoLoopsError(Exception):
    """There are no loops for a kernel, for this equation in it."""

    def __init__(self, equation: Any) -> None:
        super().__init__(equation.primitive.name)
        self.equation = equation


class RuleOfReferencesError(NoLoopsError):
    """The equation is a call that has rules, and takes a reference."""


def is_interpreted(equation: Any) -> bool:
    """Whether a kernel is lowered to these loops anyway."""
    return equation.params["interpret"] is True


def is_emulated(equation: Any) -> bool:
    """Whether calls of Python stand for the device, as `InterpretParams` asks for."""
    return not isinstance(equation.params["interpret"], bool)


def as_loops(equation: Any) -> Any:
    """What the equation of a kernel computes, as a closed jaxpr without references.

    Raises:
      NoLoopsError: an operation of the kernel is one of devices only.
      RuleOfReferencesError: a call in the kernel that has rules takes a reference.
    """
    from jax._src.pallas import hlo_interpreter  # whoever has a kernel has imported it

    params = {**equation.params, "jaxpr": _held(equation.params["jaxpr"])}
    del params["interpret"]
    interpret = functools.partial(hlo_interpreter.pallas_call_hlo_interpret, **params)
    avals = tracing.structs(atom.aval for atom in equation.invars)
    loops = references.released(_without_scopes(jax.make_jaxpr(interpret)(*avals)))
    _check(loops)
    return loops


def _check(jaxpr: Any) -> None:
    """Raises NoLoopsError for an equation that no platform of XLA knows."""
    for equation in jaxpr.eqns:
        for _, body in jaxprs.bodies_of(equation):
            _check(body)
        if not has_lowering(equation.primitive):
            raise NoLoopsError(equation)


def as_call(equation: Any, loops: Any) -> Any:
    """The equation of a kernel as a call of what `as_loops` gave."""
    name = equation.params["name"] or source_info.function_name(equation.params["jaxpr"])
    return _call(equation, tracing.equations_to_function(loops), name)


def _call(equation: Any, function: Callable[..., Any], name: str) -> Any:
    def named(*args: Any) -> Any:
        return function(*args)

    named.__name__ = name
    avals = tracing.structs(atom.aval for atom in equation.invars)
    (call,) = jax.make_jaxpr(jax.jit(named))(*avals).eqns
    return equation.replace(primitive=call.primitive, params=call.params, effects=call.effects)


def _held(jaxpr: Any) -> Any:
    return jaxprs.with_like_equations(jaxpr, [_hold(each) for each in jaxpr.eqns])


def _hold(equation: Any) -> Any:
    if user_rules.rule_functions(equation) is None:
        return jaxprs.with_bodies(equation, lambda _, body: _held(body))
    if references.are_used(equation):
        raise RuleOfReferencesError(equation)
    return references.passing(equation)


def _without_scopes(jaxpr: Any) -> Any:
    """The jaxpr with values in the place of the references that a scope in a kernel makes."""
    return jaxprs.with_like_equations(jaxpr, [_without_scope(each) for each in jaxpr.eqns])


def _without_scope(equation: Any) -> Any:
    equation = jaxprs.with_bodies(equation, lambda _, body: _without_scopes(body))
    if equation.primitive.name != "run_scoped" or equation.params["collective_axes"]:
        return equation
    from jax._src.pallas.primitives import uninitialized_value

    jaxpr = equation.params["jaxpr"]
    body = _discharge.discharge_state(jaxprs.close(jaxprs.with_constants_as_arguments(jaxpr)))
    run, avals = tracing.equations_to_function(body), body.in_avals[len(equation.invars) :]

    def scope(*args: Any) -> list[Any]:
        scoped = [uninitialized_value(aval.shape, aval.dtype) for aval in avals]
        return run(*args, *scoped)[: len(equation.outvars)]

    return _call(equation, scope, "run_scoped")
