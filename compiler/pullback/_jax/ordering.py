"""Replace ordered effects (`ordered=True`) by unordered ones, kept in the order of the ops."""

from __future__ import annotations

from typing import Any

from jax._src import debugging as _debugging, effects as _effects
from jax._src.interpreters import mlir as _mlir
from jax.extend import core as _extend_core

from pullback._jax import func, ir, jaxprs, tracing
from pullback._jax.primitives import flattened

ORDERED = "pullback.ordered"
"""Attribute of a function with an ordered effect: it takes a token first, and returns one first."""


def _unordered(effects: Any) -> frozenset[Any]:
    """Replace each ordered effect with an unordered one."""
    ordered = _effects.ordered_effects.contains
    return frozenset(_debugging.debug_effect if ordered(each) else each for each in effects)


def unordered(jaxpr: Any) -> Any:
    """Remove the ordered effects from the type of a jaxpr; the order of its equations stays."""
    effects = jaxprs.opened(jaxpr).effects
    return jaxprs.replaced(jaxpr, effects=_unordered(effects)) if _has_order(effects) else jaxpr


def _has_order(effects: Any) -> bool:
    return bool(effects) and bool(_effects.ordered_effects.filter_in(effects))


def in_text(equation: Any, debug_info: Any) -> Any:
    """Remove the ordered effects of an equation; its place among the others gives the order.

    An equation without bodies becomes a call of a marked function (`ORDERED`), which takes a token
    of its own.
    """
    if not _has_order(equation.effects):
        return equation
    if not any(True for _ in jaxprs.bodies_of(equation)):
        jaxpr = jaxprs.equation_alone(equation, debug_info)
        params = {"jaxpr": jaxpr, "name": jaxprs.name_of(equation)}
        equation = equation.replace(primitive=_ordered, params=params)
    return equation.replace(effects=_unordered(equation.effects))


def _lowering(ctx: Any, *operands: Any, jaxpr: Any, name: str) -> Any:
    """Emit a call of a function that has the ordered effect, with tokens, as JAX lowers it."""
    tokens = _mlir.TokenSet.create(_effects.ordered_effects.filter_in(jaxpr.effects))
    function, _, _ = _mlir.lower_called_computation(
        name, jaxpr, ctx.module_context, 0, ctx.avals_in, ctx.avals_out, tokens
    )
    function.attributes[ORDERED] = ir.UnitAttr.get()
    symbol = ir.FlatSymbolRefAttr.get(function.sym_name.value)
    values = flattened(ctx, [*(token for _, token in tokens.items()), *operands])
    return func.CallOp(function.type.results, symbol, values).results[len(tokens) :]


_ordered = _extend_core.Primitive(ORDERED)
_ordered.multiple_results = True
_ordered.def_impl(lambda *args, jaxpr, **_: tracing.equations_to_function(jaxpr)(*args))
_ordered.def_effectful_abstract_eval(
    lambda *_, jaxpr, **__: (jaxpr.out_avals, _unordered(jaxpr.effects))
)
_mlir.register_lowering(_ordered, _lowering)
