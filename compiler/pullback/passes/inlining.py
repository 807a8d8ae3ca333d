"""The body of a function in the place of a call to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value

if TYPE_CHECKING:
    from pullback.passes.differentiation import Differentiation

INLINE_LIMIT = 24  # ops; a call and its signature cost as much as a few of them


def call_results(function: Any) -> list[Any]:
    type = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    return list(type.results)


def call(diff: Differentiation, name: str, operands: Sequence[Value]) -> list[Value]:
    """The results of @name on `operands`, here: by its ops if it is small, else by a call."""
    function = diff.function(name)
    block = function.regions[0].blocks[0]
    if len(block.operations) <= INLINE_LIMIT:
        return inline(function, operands)
    return list(build.call(name, operands, call_results(function)).results)


def inline(function: Any, operands: Sequence[Value]) -> list[Value]:
    """A copy of the function's body, here."""
    copy = function.clone(False)
    block = copy.regions[0].blocks[0]
    for argument, v in zip(list(block.arguments), operands, strict=True):
        argument.replace_all_uses_with(v)
    operations = [view.operation for view in block.operations]
    results = list(operations[-1].operands)
    ip = build.here.ip
    before = ip.ref_operation
    for operation in operations[:-1]:
        if before is None:
            ip.block.append(operation)
        else:
            operation.move_before(before)
    operations[-1].erase()
    return results
