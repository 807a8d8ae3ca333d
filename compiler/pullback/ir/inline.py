"""Inlining: the body of a function in the place of a call to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback._jax.inlining import inlined
from pullback.errors import MissingRuleError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.locations import user_line
from pullback.ir.regions import replace_op
from pullback.ir.symbols import symbol


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


def inline_call(call: ir.Operation, function: ir.Operation) -> None:
    """Replace one call by a copy of the single-block body of `function`."""
    with build.inserting(ir.InsertionPoint(call)):
        returned = inline(function, list(call.operands))
    replace_op(call, returned)
