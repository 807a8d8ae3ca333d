"""Rewrite Pallas kernels as loops over their grids, with values in place of references.

JAX's interpreter makes these loops. It expects that nobody will differentiate them, and drops
custom rules; so calls that have rules are wrapped in a primitive of ours meanwhile.

Where a block reaches beyond its array, the interpreter pads with NaN. A kernel discards what it
computes from padding, whose cotangent is zero; but zero times NaN is NaN, which would spread to
the other operands' cotangents. So the loops to differentiate are padded with the array's nearest
elements instead.
"""

from __future__ import annotations

import functools
import operator
import traceback
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.state import discharge as _discharge

from pullback._jax import (
    equations_as_calls,
    jaxprs,
    references,
    source_info,
    tracing,
    user_rules,
)
from pullback._jax.lowering import has_lowering

_GRID = "jax._src.pallas.core", "axis_frame"
_IN_KERNELS_ONLY = frozenset({"program_id", "num_programs", "run_scoped"})


class NoLoopsError(Exception):
    """A kernel cannot be rewritten as loops, because of this equation in it."""

    def __init__(self, equation: Any) -> None:
        super().__init__(equation.primitive.name)
        self.equation = equation


class RuleOfReferencesError(NoLoopsError):
    """The equation is a call with custom rules that takes a reference."""


class RuleOfKernelsError(NoLoopsError):
    """The equation is a call with custom rules that uses a primitive which only kernels have."""

    def __init__(self, equation: Any, asked: str) -> None:
        super().__init__(equation)
        self.asked = asked


def asks_for_grid(error: BaseException) -> bool:
    """Return True if `program_id` or `num_programs` raised the error, outside of any kernel."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and (frames[-1].f_globals["__name__"], frames[-1].f_code.co_name) == _GRID


def is_interpreted(equation: Any) -> bool:
    """Return True if JAX lowers the kernel to such loops itself (`interpret=True`)."""
    return equation.params["interpret"] is True


def is_emulated(equation: Any) -> bool:
    """Return True if the kernel is emulated by callbacks to Python (`InterpretParams`)."""
    return not isinstance(equation.params["interpret"], bool)


def as_loops(equation: Any) -> Any:
    """Rewrite the equation of a kernel as loops: a closed jaxpr without references.

    Raises:
      NoLoopsError: an operation of the kernel is one of devices only.
      RuleOfReferencesError: a call in the kernel that has rules takes a reference.
      RuleOfKernelsError: such a call reads where in the grid it is, or makes references.
    """
    from jax._src.pallas import hlo_interpreter  # whoever has a kernel has imported it

    params = {**equation.params, "jaxpr": _held(equation.params["jaxpr"])}
    del params["interpret"]
    interpret = functools.partial(hlo_interpreter.pallas_call_hlo_interpret, **params)
    avals = tracing.structs(atom.aval for atom in equation.invars)
    held = _without_scopes(jax.make_jaxpr(interpret)(*avals))
    loops = references.released(held)
    _check(loops)
    near = _reading_nearest(held)
    if near is held:
        return loops
    value, other = map(tracing.equations_to_function, (loops, references.released(near)))

    def both(*args: Any) -> list[Any]:
        values = value(*map(jax.lax.stop_gradient, args))
        return [_differentiated_as(*pair) for pair in zip(values, other(*args), strict=True)]

    return jax.make_jaxpr(both)(*avals)


@jax.custom_jvp
def _value_alone(value: Any, other: Any) -> Any:
    return value


@_value_alone.defjvp
def _tangent_of_the_other(primals: Any, tangents: Any) -> Any:
    """Return the tangent of `other`, with NaN where `value` is NaN.

    There, the kernel has used the padding around its arrays.
    """
    value = _value_alone(*primals)
    return value, tangents[1] * jnp.where(jnp.isnan(value), value, jnp.ones_like(value))


def _differentiated_as(value: Any, other: Any) -> Any:
    """Return `value` with the derivatives of `other`."""
    return _value_alone(value, other) if jnp.issubdtype(value.dtype, jnp.inexact) else value


def _reading_nearest(jaxpr: Any) -> Any:
    """Replace the interpreter's padding by NaN with padding by an array's nearest elements.

    Paddings of the kernel's own are hidden meanwhile. One of unknown width stays, and gives NaN.
    """
    equations = [_read_nearest(each) for each in jaxpr.eqns]
    if all(map(operator.is_, equations, jaxpr.eqns)):
        return jaxpr
    return jaxprs.replaced(jaxpr, eqns=equations)


def _read_nearest(equation: Any) -> Any:
    if equation.primitive.name != "pad":
        return jaxprs.with_bodies(equation, lambda _, body: _reading_nearest(body))
    array, widths = equation.invars[0].aval, equation.params["padding_config"]
    around = [(low, high) for low, high, _ in widths]
    known = all(isinstance(width, (int, np.integer)) for pair in around for width in pair)
    if (
        not known
        or np.max(around, initial=0) <= 0
        or 0 in array.shape
        or not jnp.issubdtype(array.dtype, jnp.inexact)
    ):
        return equation

    def nearest(x: Any, _: Any) -> Any:
        padded = jnp.pad(jax.lax.stop_gradient(x), around, mode="edge")
        return jax.lax.dynamic_update_slice(padded, x, [low for low, _ in around])

    return equations_as_calls.as_jitted(equation, nearest, "nearest")


def _check(jaxpr: Any) -> None:
    """Raise NoLoopsError for an equation that has no lowering on any platform."""
    for equation in jaxpr.eqns:
        for _, body in jaxprs.bodies_of(equation):
            _check(body)
        if not has_lowering(equation.primitive):
            raise NoLoopsError(equation)


def as_call(equation: Any, loops: Any) -> Any:
    """Replace the equation of a kernel with a call of the loops made by `as_loops`."""
    name = equation.params["name"] or source_info.function_name(equation.params["jaxpr"])
    return equations_as_calls.as_jitted(equation, tracing.equations_to_function(loops), name)


def _held(jaxpr: Any) -> Any:
    return jaxprs.replaced(jaxpr, eqns=[_hold(each) for each in jaxpr.eqns])


def _hold(equation: Any) -> Any:
    if user_rules.rule_functions(equation) is not None:
        _check_rule(equation)
    elif equation.primitive.name != "pad":
        return jaxprs.with_bodies(equation, lambda _, body: _held(body))
    return references.passing(equation)


def _check_rule(equation: Any) -> None:
    """Raise NoLoopsError if a call with custom rules cannot be taken out of its kernel."""
    if references.are_used(equation):
        raise RuleOfReferencesError(equation)
    for _, body in jaxprs.bodies_of(equation):
        if (asked := _of_kernels(body)) is not None:
            raise RuleOfKernelsError(equation, asked)


def _of_kernels(jaxpr: Any) -> str | None:
    """Return the name of a primitive in the jaxpr that only kernels have, or None."""
    names = (str(each.primitive.name) for each in jaxprs.equations_in(jaxpr))
    return next((name for name in names if name in _IN_KERNELS_ONLY), None)


def _without_scopes(jaxpr: Any) -> Any:
    """Replace references that a kernel allocates (`run_scoped`) with values."""
    return jaxprs.replaced(jaxpr, eqns=[_without_scope(each) for each in jaxpr.eqns])


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

    return equations_as_calls.as_jitted(equation, scope, "run_scoped")
