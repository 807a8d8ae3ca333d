"""Discharge mutable arrays (`jax.Ref`) that a function makes for itself: turn them into values.

JAX discharges them when it lowers, after all derivatives have been taken; so it rebuilds every
equation, and drops the rules of calls. Here it sees only the equations that use mutable arrays;
the others are hidden from it, and stay as they are.
"""

from __future__ import annotations

from typing import Any

import jax
from jax._src import core as _core
from jax._src.state import ReadEffect, RefEffect, discharge as _discharge
from jax.extend import core as _extend_core

from pullback._jax import jaxprs
from pullback._jax.holders import holder_of

_EFFECTS = _core.InternalMutableArrayEffect, RefEffect

_DISCHARGED = frozenset(
    {
        "new_ref",
        "empty_ref",
        "get",
        "swap",
        "addupdate",
        "freeze",
        "free_ref",
        "optimization_barrier",
        "debug_callback",
        "debug_print",
    }
)
"""List primitives that stay differentiable when JAX discharges them, beside those that hold jaxprs.

Others would lose their rules."""


_KERNELS = frozenset({"core_map", "mpmd_map"})
"""The primitives that a `core_map` is traced to, in jax 0.10 and 0.12."""


class NotDischargedError(Exception):
    """A mutable array is an operand of a call with custom rules, or of another such equation."""

    def __init__(self, equation: Any) -> None:
        super().__init__(equation.primitive.name)
        self.equation = equation
        self.is_core_map = equation.primitive.name in _KERNELS


class HandedTwiceError(NotDischargedError):
    """A call writes to a mutable array that it takes twice, of which JAX would make two values."""


def are_used(equation: Any) -> bool:
    """Return True if an equation makes, takes, reads or writes a mutable array."""
    return any(isinstance(effect, _EFFECTS) for effect in equation.effects) or any(
        _is_one(atom.aval) for atom in equation.invars
    )


def is_one(value: Any) -> bool:
    """Return True if a value is a mutable array."""
    return isinstance(value, jax.Ref) or _is_one(getattr(value, "aval", None))


def are_taken(jaxpr: Any) -> bool:
    """Return True if a function takes a mutable array as an argument, or closes over one."""
    inner = jaxprs.opened(jaxpr)
    return any(_is_one(var.aval) for var in (*inner.constvars, *inner.invars))


def discharged(closed: Any) -> Any:
    """Replace the mutable arrays in a closed jaxpr, which takes none, with values.

    Those inside calls that do not declare the effect, such as `linear_call`, stay.

    Raises:
      NotDischargedError: one is an operand of a call that has rules.
      HandedTwiceError: one is an operand twice, such as of a loop whose condition reads it.
    """
    if not any(isinstance(effect, _EFFECTS) for effect in closed.effects):
        return closed
    return released(_discharge.discharge_state(_held(closed)))


def _is_one(aval: Any) -> bool:
    return isinstance(aval, jax.ref.AbstractRef)


# ------------------------------------------------------------- equations that pass through


class _Kept:
    """Holds an equation as a parameter that compares by identity."""

    def __init__(self, equation: Any) -> None:
        self.equation = equation


_passing = _extend_core.Primitive("pullback.passing")
_passing.multiple_results = True
_passing.def_effectful_abstract_eval(
    lambda *_, kept: ([var.aval for var in kept.equation.outvars], kept.equation.effects)
)


def _held(jaxpr: Any) -> Any:
    """Wrap the equations of a jaxpr that use no mutable arrays in our primitive."""
    return jaxprs.replaced(jaxpr, eqns=[_hold(each) for each in jaxpr.eqns])


def _hold(equation: Any) -> Any:
    if are_used(equation):
        if _is_written_by_two_names(equation):
            raise HandedTwiceError(equation)
        equation = _unpinned(equation)
        if jaxprs.name_of(equation) in _DISCHARGED or holder_of(equation).is_discharged:
            return jaxprs.with_bodies(equation, lambda _, body: _held(body))
        equation = _without_its_own(equation)
    return passing(equation)


def _unpinned(equation: Any) -> Any:
    """Remove `pin` from an equation that makes a mutable array, pinned to a buffer by JAX 0.12.

    A pinned buffer has a type of its own, which is not that of an array and has no derivatives.
    """
    params = equation.params
    return equation.replace(params={**params, "pin": False}) if params.get("pin") else equation


def passing(equation: Any) -> Any:
    """Wrap an equation in a primitive of ours, until `released` puts it back."""
    operands = [atom for atom in equation.invars if not isinstance(atom, jaxprs.Literal)]
    return equation.replace(primitive=_passing, invars=operands, params={"kept": _Kept(equation)})


def _is_written_by_two_names(equation: Any) -> bool:
    """Return True if an equation writes to a mutable array that it takes twice.

    Also for a loop whose condition writes: JAX would drop the writes of its last evaluation.
    """
    if jaxprs.name_of(equation) == "while" and _writes(equation.params["cond_jaxpr"]):
        return True
    taken = [atom for atom in equation.invars if _is_one(atom.aval)]
    return len(taken) > len(set(taken)) and _writes(equation)


def _writes(what: Any) -> bool:
    """Return True if an equation or a jaxpr writes to a mutable array that it takes."""
    return any(isinstance(e, RefEffect) and not isinstance(e, ReadEffect) for e in what.effects)


def _without_its_own(equation: Any) -> Any:
    """Discharge the mutable arrays inside a call with custom rules; raise if it takes one."""
    if any(_is_one(atom.aval) for atom in equation.invars):
        raise NotDischargedError(equation)
    pure = jaxprs.with_bodies(equation, lambda _, body: discharged(jaxprs.close(body)))
    rest = {effect for effect in equation.effects if not isinstance(effect, _EFFECTS)}
    return pure.replace(effects=rest)


def released(jaxpr: Any) -> Any:
    """Put back the equations that `passing` had hidden."""
    return jaxprs.replaced(jaxpr, eqns=[_release(each) for each in jaxpr.eqns])


def _release(equation: Any) -> Any:
    if equation.primitive is not _passing:
        return jaxprs.with_bodies(equation, lambda _, body: released(body))
    kept, operands = equation.params["kept"].equation, iter(equation.invars)
    atoms = [a if isinstance(a, jaxprs.Literal) else next(operands) for a in kept.invars]
    return kept.replace(invars=atoms, outvars=equation.outvars)
