"""Inlining: the body of a function in the place of a call to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback import _jax
from pullback._jax import ir
from pullback._jax.inlining import inlined
from pullback.errors import MissingRuleError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.locations import user_line
from pullback.ir.symbols import symbol

if TYPE_CHECKING:
    from pullback.autodiff.state import Differentiation

INLINE_LIMIT = 24  # ops; a call and its signature cost as much as a few of them


def call(diff: Differentiation, name: str, operands: Sequence[Value]) -> list[Value]:
    """Apply @name to `operands` and return its results: inlined if it is small, else by a call."""
    known = diff.bodies.get(name)
    if known is None:
        large = len(diff.block(name).operations) > INLINE_LIMIT
        function = diff.function(name).operation
        known = diff.bodies[name] = emit_call if large else inline, function
    emit, function = known
    return emit(function, operands)


def emit_call(function: Any, operands: Sequence[Value]) -> list[Value]:
    """Emit a call of a function and return its results.

    Raises:
      MissingRuleError: the function takes another type, dynamic where this one is static.
    """
    type = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    name = symbol(function)
    for v, expected in zip(operands, type.inputs, strict=True):
        if v.type != expected:
            raise MissingRuleError(
                f"no derivative that gives `@{name}` a {v.type} where it takes a {expected}",
                where=user_line(build.here.loc),
                do=build.REFINE_SHAPES,
            )
    return list(build.call(name, operands, list(type.results)).results)


def inline(function: Any, operands: Sequence[Value]) -> list[Value]:
    """Emit a copy of the function's body, whose ops keep their locations; return its results."""
    with build.here.ip, ir.Location.unknown(_jax.context()):
        return inlined(function, operands)
