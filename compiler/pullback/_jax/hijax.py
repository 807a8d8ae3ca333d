"""Calls in JAX's newer (hijax) encoding: jax_custom_jvp3, jax_custom_vjp3 and jax_remat3."""

from __future__ import annotations

from typing import Any

import jax
from jax._src import core as _core
from jax.experimental import hijax as _hijax
from jax.extend.core import primitives as _primitives

from pullback._jax import jaxprs, tracing


def is_type(aval: object) -> bool:
    """Return True if this is a hijax type, defined by a user: its values are not arrays."""
    return isinstance(aval, _TYPES)


def has_type(value: object) -> bool:
    """Return True if a value is of a hijax type."""
    if type(value) not in _core.pytype_aval_mappings:
        return False
    return is_type(jax.typeof(value))


_TYPES = (_hijax.HiType, getattr(_hijax, "MutableHiType", _hijax.HiType))


def kind_of(equation: Any) -> str:
    """Return the name of the class of a hijax call, such as `CustomVJPTraced`."""
    return type(_without_vmap(equation.params["_prim"])).__name__


def rules_of(equation: Any) -> set[str]:
    """Return which rules a hijax call has, of "jvp", "vjp" and "transpose".

    A rule for `jax.linearize` (`lin`) counts as "jvp".
    """
    prim = mapped(equation.params["_prim"])
    if type(prim).__name__ in _ONE_RULE:
        return {_ONE_RULE[type(prim).__name__]}
    own = _methods(prim)
    kinds = {"transpose": "transpose", "jvp": "jvp", "lin": "jvp", "vjp_fwd": "vjp"}
    return {kinds[name] for name in own.keys() & kinds.keys()}


def _methods(prim: Any) -> dict[str, Any]:
    *classes, _, _ = type(prim).__mro__
    return {name: value for each in reversed(classes) for name, value in vars(each).items()}


_ONE_RULE = {"CustomJVPTraced": "jvp", "CustomVJPTraced": "vjp"}


def lacks_jvp(equation: Any) -> bool:
    """Return True if a call's class has rules, but none that JAX can use for `jax.jvp`."""
    prim = mapped(equation.params["_prim"])
    rules = _methods(prim).keys() & {"jvp", "lin", "vjp_fwd"}
    return type(prim).__name__ not in _ONE_RULE and bool(rules) and "jvp" not in rules


def goes_by_linearize(equation: Any) -> bool:
    """Return True if a call's only forward-mode rule is one for `jax.linearize`."""
    prim = equation.params.get("_prim")
    return prim is not None and _methods(mapped(prim)).keys() & {"jvp", "lin"} == {"lin"}


def expand(equation: Any) -> Any:
    """Return the computation of a hijax call, without its rules, as a closed jaxpr."""
    prim = equation.params["_prim"]

    def expanded(*leaves: Any) -> Any:
        return prim.expand(*jax.tree.unflatten(prim.in_tree, leaves))

    avals = [atom.aval for atom in equation.invars]
    with jax.core.eval_context():
        return jax.make_jaxpr(expanded)(*tracing.structs(avals))


def with_name(equation: Any) -> Any:
    """Replace a `checkpoint_name` in the hijax encoding with JAX's ordinary primitive for it."""
    if jaxprs.name_of(equation) != "call_hi_primitive" or kind_of(equation) not in _NAMES:
        return equation
    return equation.replace(primitive=_primitives.name_p, params=parameters_of(equation))


_NAMES = ("CheckpointName", "CheckpointNameFwd")


def with_remat_rules(jaxpr: Any) -> Any:
    """Return the body of a checkpoint with the rules of `defremat` put on its `custom_vjp` calls.

    JAX keeps what the first of these rules saves, and runs the second in the reverse pass. Here
    both run there, as part of the rematerialized body.
    """
    equations = [_by_remat_rules(each) for each in jaxprs.opened(jaxpr).eqns]
    return jaxprs.replaced(jaxpr, eqns=equations)


def _by_remat_rules(equation: Any) -> Any:
    params = parameters_of(equation)
    if "_prim" in equation.params and kind_of(equation) == "RematTraced":
        nested = type(equation.params["_prim"])(
            **{**params, "jaxpr": with_remat_rules(params["jaxpr"])}
        )
        return equation.replace(params={**equation.params, "_prim": nested})
    if params.get("remat_rules") is None:
        return jaxprs.with_bodies(equation, lambda _, body: with_remat_rules(body))
    forward, again, backward = params["remat_rules"]

    def fwd(_: Any, *args: Any) -> Any:
        return again(forward(*args)[1], *args)

    prim = equation.params["_prim"]
    is_general = prim.generic_batching
    new = type(prim)(
        prim.traced, fwd, backward, prim.in_avals, False, False, generic_batching=is_general
    )
    return equation.replace(params={**equation.params, "_prim": new})


def prim_parameters(value: Any) -> dict[str, Any] | None:
    """Return the parameters of a hijax primitive object; None for any other value."""
    is_call = type(value).__module__ == "jax._src.hijax" and hasattr(value, "expand")
    return value.params if is_call else None


def parameters_of(equation: Any) -> Any:
    """Return the parameters of a call, in the ordinary or the hijax encoding."""
    high = equation.params.get("_prim")
    return equation.params if high is None else _without_vmap(high).params


def mapped(prim: Any) -> Any:
    """Return the primitive under all `jax.vmap` wrappers (`VmapOf`) of a hijax call."""
    while type(prim).__name__ == "VmapOf":
        prim = prim.params["prim"]
    return prim


def _without_vmap(prim: Any) -> Any:
    """Return the `custom_vjp` primitive under JAX 0.10's vmap wrappers; any other one as it is.

    The wrapped primitive has rules of the same kinds.
    """
    inner = mapped(prim)
    return inner if type(inner).__name__ == "CustomVJPTraced" else prim
