"""Edits of a program's entry: copies, operands in another order, fewer results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pullback._jax import ir
from pullback.passes.base import Pass, Rules
from pullback.passes.dead_ops import erase_dead_ops
from pullback.passes.differentiation import replace_terminator, set_signature, terminator
from pullback.passes.symbols import erase_unreachable, functions


def clone(module: ir.Module) -> ir.Module:
    """A copy of a module, made in C++."""
    with module.context, ir.Location.unknown(module.context):
        copy = ir.Module.create()
        for name, attribute in module.operation.attributes.items():
            copy.operation.attributes[name] = attribute
        place = ir.InsertionPoint(copy.body)
        for op in module.body.operations:
            op.operation.clone(ip=place)
    return copy


def take_entry(module: ir.Module, name: str) -> None:
    """Makes @name the entry in the place of @main."""
    table = functions(module)
    table["main"].erase()
    with module.context:
        table[name].attributes["sym_name"] = ir.StringAttr.get("main")
        table[name].attributes["sym_visibility"] = ir.StringAttr.get("public")
    erase_unreachable(module)


def drop_function(module: ir.Module, name: str) -> None:
    """Erases @name, and what only it refers to."""
    functions(module)[name].erase()
    erase_unreachable(module)


@dataclass(frozen=True)
class ReorderOperands(Pass):
    """Put the operand at `order[i]` of the entry at position i; `order` names all of them."""

    name: ClassVar[str] = "reorder-operands"
    order: tuple[int, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Changes the entry in place."""
        if self.order == tuple(range(len(self.order))):
            return
        function, block = _entry(module)
        with module.context:
            old = list(block.arguments)
            for position in self.order:
                fresh = block.add_argument(old[position].type, function.location)
                old[position].replace_all_uses_with(fresh)
            for _ in self.order:
                block.erase_argument(0)
            set_signature(function)


@dataclass(frozen=True)
class SelectResults(Pass):
    """Let the entry return the results at these positions only, in this order."""

    name: ClassVar[str] = "select-results"
    order: tuple[int, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Changes the entry in place, and erases what was only needed for other results."""
        function, block = _entry(module)
        results = list(terminator(block).operands)
        if self.order == tuple(range(len(results))):
            return
        with module.context:
            replace_terminator(block, [results[i] for i in self.order])
            set_signature(function)
        erase_dead_ops(block, functions(module))


def _entry(module: ir.Module) -> tuple[ir.Operation, Any]:
    function = functions(module)["main"]
    return function, function.regions[0].blocks[0]
