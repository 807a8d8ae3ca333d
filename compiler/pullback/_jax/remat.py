"""Rematerialization (`jax.checkpoint`): recomputed bodies, and the values a policy saves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax._src import core as _core, effects as _effects
from jax._src.interpreters import partial_eval as _pe

from pullback._jax import func, hijax, ir, jaxprs, tracing
from pullback._jax.primitives import calling, composite_of, decomposition, flattened

Policy = Callable[..., Any]
"""A policy of `jax.checkpoint`: takes a primitive, its operands' types and its parameters."""

LostOffload = Callable[[str, Any], None]
"""Called with the name of a policy, and an equation whose results it would offload to the host."""

CHECKPOINT = "pullback.checkpoint"
"""Attribute of a function whose body the reverse pass rematerializes."""

SAVED = "checkpoint.saved"
"""Name of an identity composite that marks its operand as a value to save for the reverse pass."""


def _checkpoint_lowering(ctx: Any, *operands: Any, jaxpr: Any, name: str) -> Any:
    """Emit a call of a function marked with `CHECKPOINT`."""
    function = decomposition(ctx, name, jaxpr)
    function.attributes[CHECKPOINT] = ir.UnitAttr.get()
    symbol = ir.FlatSymbolRefAttr.get(function.sym_name.value)
    return func.CallOp(function.type.results, symbol, flattened(ctx, operands)).results


def _saved_lowering(ctx: Any, operand: Any, *, jaxpr: Any) -> Any:
    """Emit the identity composite `SAVED`, which marks a value to save for the reverse pass."""
    return composite_of(ctx, [operand], SAVED, decomposition(ctx, "saved", jaxpr), {})


_checkpoint = calling(CHECKPOINT, _checkpoint_lowering)
_saved = calling(SAVED, _saved_lowering)


def as_checkpoint(equation: Any, *, jaxpr: Any, name: str) -> Any:
    """Replace an equation with a call whose body the reverse pass rematerializes."""
    return equation.replace(primitive=_checkpoint, params={"jaxpr": jaxpr, "name": name})


def recomputed(equation: Any, lost: LostOffload) -> Any:
    """Return the body of a `jax.checkpoint`, in either encoding, with marks on values to save.

    It has the rules of `defremat`, unless the policy saves everything: then nothing is
    rematerialized.
    """
    jaxpr, policy = hijax.parameters_of(equation)["jaxpr"], policy_of(equation)
    if "_prim" in equation.params and policy is not jax.checkpoint_policies.everything_saveable:
        jaxpr = hijax.with_remat_rules(jaxpr)
    return jaxprs.close(jaxpr if policy is None else with_saved(jaxpr, policy, lost))


def may_repeat(effects: Any) -> bool:
    """Return True if JAX allows these effects in a rematerialized body: those of debugging."""
    return not _effects.remat_allowed_effects.filter_not_in(effects)


def policy_of(equation: Any) -> Policy | None:
    """Return the policy of a `jax.checkpoint`, in either encoding; None if it has none."""
    return hijax.parameters_of(equation).get("policy")


_REACHED = frozenset({jaxprs.JITTED, "scan", "while", "cond"})
"""Primitives into whose bodies a policy looks for values to save."""


class _Watched:
    """A policy, and the equations whose results it asks to offload to the host."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.offloaded: list[Any] = []

    def keeps(self, equation: Any) -> bool:
        types = [atom.aval for atom in equation.invars]
        found = _pe.ensure_enum(self.policy(equation.primitive, *types, **equation.params))
        if isinstance(found, _pe.Offloadable):
            self.offloaded.append(equation)
        return found is not _pe.Recompute

    @property
    def name(self) -> str:
        """The name of the function that made the policy, or of its class."""
        named = self.policy if hasattr(self.policy, "__qualname__") else type(self.policy)
        return str(named.__qualname__).partition(".<locals>")[0]


def with_saved(jaxpr: Any, policy: Policy, lost: LostOffload) -> Any:
    """Mark the values in a jaxpr that a policy saves; call `lost` if it offloads any of them."""
    watched = _Watched(policy)
    found = _with_saved(jaxpr, watched)
    if watched.offloaded:
        lost(watched.name, watched.offloaded[0])
    return found


def _with_saved(jaxpr: Any, policy: _Watched) -> Any:
    equations = []
    for equation in map(hijax.with_name, jaxprs.opened(jaxpr).eqns):
        name = jaxprs.name_of(equation)
        is_saved = name != jaxprs.JITTED and policy.keeps(equation)
        if name in _REACHED:
            equation = jaxprs.with_bodies(equation, functools.partial(_reached, policy=policy))
        if is_saved:
            equations += _with_marks(equation)
        else:
            equations.append(equation)
    return jaxprs.with_like_equations(jaxpr, equations)


def _reached(name: str, body: Any, policy: _Watched) -> Any:
    """Mark the values to save in a body, except in a loop's condition, which has no residuals."""
    return body if name == "cond_jaxpr" else _with_saved(body, policy)


def _with_marks(equation: Any) -> list[Any]:
    """Return the equation with new result variables, then marks that copy them to the old ones."""
    own = [jaxprs.Var(variable.aval) for variable in equation.outvars]
    marks = [
        equation.replace(
            primitive=_saved,
            invars=[mine],
            outvars=[variable],
            params={"jaxpr": _identity(variable.aval)},
            effects=frozenset(),
        )
        for mine, variable in zip(own, equation.outvars, strict=True)
    ]
    return [equation.replace(outvars=own), *marks]


@functools.lru_cache(maxsize=256)
def _identity(aval: Any) -> Any:
    with _core.eval_context():
        return jax.make_jaxpr(lambda x: x)(*tracing.structs([aval]))
