"""Rematerialization (`jax.checkpoint`): recomputed bodies, and the values a policy saves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import ad_checkpoint as _ad_checkpoint
from jax._src import effects as _effects
from jax._src.interpreters import partial_eval as _pe

from pullback._jax import func, hijax, ir, jaxprs, tracing
from pullback._jax.holders import holder_of
from pullback._jax.primitives import calling, composite_of, decomposition, flattened

Policy = Callable[..., Any]
"""A policy of `jax.checkpoint`: takes a primitive, its operands' types and its parameters."""

CHECKPOINT = "pullback.checkpoint"
"""Attribute of a function whose body the reverse pass rematerializes."""

SAVED = "checkpoint.saved"
"""Name of an identity composite that marks its operand as a value to save for the reverse pass."""

OFFLOADED = "checkpoint.offloaded"
"""Name by which `as_jax` lets a policy of JAX know a value that is marked with a memory."""

MEMORY = "memory"
"""Attribute of such a mark: the memory that the value is moved to until the reverse pass."""

_WITH_HOST_MEMORY = frozenset({"cuda", "rocm", "tpu"})
"""Platforms for which JAX lowers a move to the memory of the host."""


def _checkpoint_lowering(ctx: Any, *operands: Any, jaxpr: Any, name: str) -> Any:
    """Emit a call of a function marked with `CHECKPOINT`."""
    function = decomposition(ctx, name, jaxpr)
    function.attributes[CHECKPOINT] = ir.UnitAttr.get()
    symbol = ir.FlatSymbolRefAttr.get(function.sym_name.value)
    return func.CallOp(function.type.results, symbol, flattened(ctx, operands)).results


def _saved_lowering(ctx: Any, operand: Any, *, jaxpr: Any, memory: str | None) -> Any:
    """Emit the identity composite `SAVED`, which marks a value to save for the reverse pass."""
    is_moved = memory is not None and not _WITH_HOST_MEMORY.isdisjoint(ctx.module_context.platforms)
    attributes = {MEMORY: ir.StringAttr.get(memory)} if is_moved else {}
    return composite_of(ctx, [operand], SAVED, decomposition(ctx, "saved", jaxpr), attributes)


_checkpoint = calling(CHECKPOINT, _checkpoint_lowering)
_saved = calling(SAVED, _saved_lowering)


def as_checkpoint(equation: Any, *, jaxpr: Any, name: str) -> Any:
    """Replace an equation with a call whose body the reverse pass rematerializes."""
    return equation.replace(primitive=_checkpoint, params={"jaxpr": jaxpr, "name": name})


def recomputed(equation: Any) -> Any:
    """Return the body of a `jax.checkpoint`, in either encoding, with marks on values to save.

    It has the rules of `defremat`, unless the policy saves everything: then nothing is
    rematerialized.
    """
    jaxpr, policy = hijax.parameters_of(equation)["jaxpr"], policy_of(equation)
    if "_prim" in equation.params and policy is not jax.checkpoint_policies.everything_saveable:
        jaxpr = hijax.with_remat_rules(jaxpr)
    return jaxprs.close(jaxpr if policy is None else with_saved(jaxpr, policy))


def may_repeat(effects: Any) -> bool:
    """Return True if JAX allows these effects in a rematerialized body: those of debugging."""
    return not _effects.remat_allowed_effects.filter_not_in(effects)


def policy_of(equation: Any) -> Policy | None:
    """Return the policy of a `jax.checkpoint`, in either encoding; None if it has none."""
    return hijax.parameters_of(equation).get("policy")


class UnknownMemoryError(Exception):
    """Raised where a policy offloads to, or from, a memory that JAX has no space for.

    Attributes:
      equation: one whose results the policy offloads.
      source: the memory that the policy says they are in.
      destination: that to which it moves them.
    """

    def __init__(self, equation: Any, source: str, destination: str) -> None:
        super().__init__(source, destination)
        self.equation, self.source, self.destination = equation, source, destination


def with_saved(jaxpr: Any, policy: Policy) -> Any:
    """Mark the values in a jaxpr that a policy saves, on the device or in the host's memory.

    Raises: UnknownMemoryError if it offloads to another memory.
    """
    equations = []
    for equation in map(hijax.with_name, jaxprs.opened(jaxpr).eqns):
        name = jaxprs.name_of(equation)
        found = _ad_checkpoint.Recompute if name == jaxprs.JITTED else _asked(policy, equation)
        if holder_of(equation).has_saved:
            equation = jaxprs.with_bodies(equation, functools.partial(_reached, policy=policy))
        if found is _ad_checkpoint.Recompute:
            equations.append(equation)
        else:
            equations += _with_marks(equation, _destination(equation, found))
    return jaxprs.replaced(jaxpr, eqns=equations)


def _asked(policy: Policy, equation: Any) -> Any:
    types = [atom.aval for atom in equation.invars]
    return _pe.ensure_enum(policy(equation.primitive, *types, **equation.params))


def _destination(equation: Any, found: Any) -> str | None:
    """Return the memory that a policy offloads to; None if it saves values where they are."""
    if not isinstance(found, _ad_checkpoint.Offloadable):
        return None
    if (found.src, found.dst) != ("device", "pinned_host"):
        raise UnknownMemoryError(equation, found.src, found.dst)
    return str(found.dst)


def _reached(name: str, body: Any, policy: Policy) -> Any:
    """Mark the values to save in a body, except in a loop's condition, which has no residuals."""
    return body if name == "cond_jaxpr" else with_saved(body, policy)


def _with_marks(equation: Any, memory: str | None) -> list[Any]:
    """Return the equation with new result variables, then marks that copy them to the old ones."""
    own = [jaxprs.Var(variable.aval) for variable in equation.outvars]
    marks = [
        equation.replace(
            primitive=_saved,
            invars=[mine],
            outvars=[variable],
            params={"jaxpr": _identity(variable.aval), "memory": memory},
            effects=frozenset(),
        )
        for mine, variable in zip(own, equation.outvars, strict=True)
    ]
    return [equation.replace(outvars=own), *marks]


@functools.lru_cache(maxsize=256)
def _identity(aval: Any) -> Any:
    with jax.core.eval_context():
        return jax.make_jaxpr(lambda x: x)(*tracing.structs([aval]))
