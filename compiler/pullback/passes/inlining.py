"""The body of a function in the place of a call to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.passes.differentiation import captures, operations

if TYPE_CHECKING:
    from pullback.passes.differentiation import Differentiation

INLINE_LIMIT = 24  # ops; a call and its signature cost as much as a few of them


def emit_call(function: Any, operands: Sequence[Value]) -> list[Value]:
    """The results of a call of a function, here."""
    type = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    name = ir.StringAttr(function.attributes["sym_name"]).value
    return list(build.call(name, operands, list(type.results)).results)


def call(diff: Differentiation, name: str, operands: Sequence[Value]) -> list[Value]:
    """The results of @name on `operands`, here: by its ops if it is small, else by a call."""
    body = diff.bodies.get(name)
    if body is None:
        body = diff.bodies[name] = Body(diff.block(name))
    return body.emit(operands)


class Body:
    """What calls of one function are made of, which is final: read once, emitted for each."""

    def __init__(self, block: Any) -> None:
        self.function = block.owner.operation
        self.large = len(block.operations) > INLINE_LIMIT
        self.steps: list[tuple[Any, list[int]]] = []  # ops, and where their operands are
        self.results: list[int] = []
        self.capturing = False
        if not self.large:
            self._read(block)

    def _read(self, block: Any) -> None:
        place = {v: i for i, v in enumerate(block.arguments)}
        *inner, end = operations(block)
        for operation in inner:
            self.steps.append((operation, [place[v] for v in operation.operands]))
            self.capturing |= len(operation.regions) > 0 and bool(captures(operation))
            for v in operation.results:
                place[v] = len(place)
        self.results = [place[v] for v in end.operands]

    def emit(self, operands: Sequence[Value]) -> list[Value]:
        """The results on these operands, here."""
        if self.large:
            return emit_call(self.function, operands)
        if self.capturing:
            return inline(self.function, operands)
        values = list(operands)
        for operation, places in self.steps:
            values += build.clone(operation, [values[i] for i in places]).results
        return [values[i] for i in self.results]


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
