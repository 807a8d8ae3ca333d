"""Partial evaluation of a call with some known operands, which JAX uses to linearize.

By default, JAX takes all results of a call as unknown if any operand is. Then it could not
linearize a `custom_jvp` rule that returns two results of one call, the value and the tangent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.interpreters import partial_eval as pe

Params = dict[str, Any]

Halves = tuple[Params, Params, Sequence[bool]]
"""Parameters of two calls, and which results the second gives.

The first takes the known operands and gives the other results, the second takes all operands.
"""

Split = Callable[[Sequence[bool], Params], Halves | None]
"""Splits a call, given which operands are unknown; returns None if all results are unknown then."""


def _halves(
    split: Split, unknown: Sequence[bool], types: Sequence[Any], params: Params
) -> Halves | None:
    """Split a call by its known operands; return None if all are known, or no result can be.

    Results vary over those axes of a `shard_map` that operands vary over. So a half without
    operands is not split off where types vary: its results could not.
    """
    if not any(unknown) or (all(unknown) and any(t.mat.varying for t in types)):
        return None
    return split(unknown, params)


def install(primitive: Any, split: Split) -> None:
    """Register rules by which JAX evaluates calls of a primitive partially, in two halves."""

    def trace_rule(trace: Any, *tracers: Any, **params: Any) -> Sequence[Any]:
        unknown = [not tracer.is_known() for tracer in tracers]
        halves = _halves(split, unknown, [tracer.aval for tracer in tracers], params)
        if halves is None:
            return list(trace.default_process_primitive(primitive, tracers, params))
        ahead, rest, late = halves
        known = [tracer.pval.get_known() for tracer in tracers if tracer.is_known()]
        types = tuple(map(jax.typeof, known))
        found = iter(primitive.bind_with_trace(trace.parent_trace, known, types, ahead))
        later = iter(trace.default_process_primitive(primitive, tracers, rest))
        return [next(later if flag else found) for flag in late]

    def equation_rule(
        saveable: Any, unknown: Sequence[bool], recomputed: Sequence[bool], eqn: Any
    ) -> tuple[Any, Any, Sequence[bool], Sequence[bool], list[Any]]:
        everything = [True] * len(eqn.outvars)
        residuals = [v for v, again in zip(eqn.invars, recomputed, strict=True) if not again]
        types = [v.aval for v in eqn.invars]
        halves = _halves(split, unknown, types, eqn.params)
        if any(unknown) and halves is None:
            return None, eqn, everything, everything, residuals
        ahead, rest, late = halves or (eqn.params, eqn.params, [False] * len(eqn.outvars))
        known = eqn.replace(
            invars=[v for v, flag in zip(eqn.invars, unknown, strict=True) if not flag],
            outvars=[v for v, flag in zip(eqn.outvars, late, strict=True) if not flag],
            params=ahead,
        )
        policy = pe.ensure_enum(saveable(eqn.primitive, *types, **eqn.params))
        if not eqn.effects and not isinstance(policy, pe.SaveableType):
            return known, eqn, late, everything, residuals
        if not any(late):
            return known, None, late, late, []
        outs = [v for v, flag in zip(eqn.outvars, late, strict=True) if flag]
        return known, eqn.replace(outvars=outs, params=rest), late, late, residuals

    pe.custom_partial_eval_rules[primitive] = trace_rule
    pe.partial_eval_jaxpr_custom_rules[primitive] = equation_rule
