"""Edits of a module and its entry: copies, operands in another order, fewer results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.checks import is_unknown
from pullback.ir import build, ops
from pullback.ir.build import Value
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.purity import Purity, is_used
from pullback.ir.regions import replace_terminator, terminator
from pullback.ir.signatures import keep_arguments, keep_results, set_signature
from pullback.ir.symbols import erase_unreachable, functions, make_public
from pullback.passes.base import Pass, Rules
from pullback.passes.manager import run_pipeline
from pullback.passes.order_effects import has_order
from pullback_runtime._erasure import erase

STRUCTURED = frozenset(
    {
        "func.call",
        "stablehlo.case",
        "stablehlo.composite",
        "stablehlo.if",
        "stablehlo.while",
    }
)
"""Ops that can be dead in part, or that use values in their regions."""


def clone(module: ir.Module) -> ir.Module:
    """Return a copy of a module, made in C++."""
    with module.context, ir.Location.unknown(module.context):
        copy = ir.Module.create()
        for name, attribute in module.operation.attributes.items():
            copy.operation.attributes[name] = attribute
        place = ir.InsertionPoint(copy.body)
        for op in module.body.operations:
            op.operation.clone(ip=place)
    return copy


def as_run(module: ir.Module) -> ir.Module:
    """Return the module as it runs: a copy with a token from each ordered effect to the next.

    The module itself, if it has no ordered effects and no map that is known by its transpose only.

    Raises: MissingRuleError if it needs a value of a map that is known by its transpose only.
    """
    if not (has_order(module) or any(map(is_unknown, ops.walk_calls(module)))):
        return module
    copy = clone(module)
    run_pipeline(copy, "lower-custom-derivatives,order-effects")
    return copy


def take_entry(module: ir.Module, name: str) -> None:
    """Make @name the entry @main; erase the old one, and what only it reaches."""
    table = functions(module)
    erase(table["main"])
    make_public(table[name], "main")
    erase_unreachable(module)


def exchange_entry(module: ir.Module, name: str) -> None:
    """Rename @name to @main; the old @main gets another name, by which it may still be called."""
    symbols = ir.SymbolTable(module.operation)
    free = next(n for i in itertools.count() if (n := f"{name}.{i}") not in symbols)
    for old, new in (("main", free), (name, "main")):
        if old in symbols:
            symbols.set_symbol_name(symbols[old], new)
            symbols.replace_all_symbol_uses(old, new, module.operation)


def type_of_entry(module: ir.Module) -> str | None:
    """Return the type of the entry as text; None if the module has no function @main."""
    entry = functions(module).get("main")
    return None if entry is None else str(entry.attributes["function_type"])


def result_types(module: ir.Module) -> Sequence[ir.Type]:
    """Return the types of the results of the entry."""
    return ir.FunctionType(ir.TypeAttr(_entry(module)[0].attributes["function_type"]).value).results


def element_types(types: Sequence[ir.Type]) -> tuple[str, ...]:
    """Return the spelling of the element types of tensors."""
    return tuple(str(build.info(type).element) for type in types)


def drop_function(module: ir.Module, name: str) -> None:
    """Erase @name, and what only it refers to."""
    erase(functions(module)[name])
    erase_unreachable(module)


@dataclass(frozen=True)
class ReorderOperands(Pass):
    """Put the operand at `order[i]` of the entry at position i; others go."""

    name: ClassVar[str] = "reorder-operands"
    order: tuple[int, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Change the entry in place."""
        function, block = _entry(module)
        if self.order != tuple(range(len(block.arguments))):
            keep_arguments(function, self.order)


@dataclass(frozen=True)
class SelectResults(Pass):
    """Let the entry return the results at these positions only, in this order."""

    name: ClassVar[str] = "select-results"
    order: tuple[int, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Change the entry in place, and erase what was only needed for other results."""
        function, block = _entry(module)
        results = list(terminator(block).operands)
        if self.order == tuple(range(len(results))):
            return
        keep_results(function, self.order)
        kept = frozenset(self.order)
        dropped = [v for i, v in enumerate(results) if i not in kept]
        table = functions(module)
        if not _erase_producers(dropped, Purity(table)):
            erase_dead_ops(block, table)


@dataclass(frozen=True)
class ConvertResults(Pass):
    """Convert the results of the entry to these element types; of complex ones the real part."""

    name: ClassVar[str] = "convert-results"
    elements: tuple[str, ...] = ()

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Change the entry in place."""
        function, block = _entry(module)
        end = terminator(block)
        with _jax.working_in(module), build.inserting(ir.InsertionPoint(end), end.location):
            types = map(build.element_type, self.elements)
            pairs = zip(end.operands, types, strict=True)
            results = [build.converted(v, build.with_element(v.type, e)) for v, e in pairs]
        replace_terminator(block, results)
        set_signature(function)


def _erase_producers(values: list[Value], purity: Purity) -> bool:
    """Erase the plain ops that only these values needed; return False if others may be dead too."""
    todo, complete = dict.fromkeys(values), True  # a set in order: no value is erased twice
    while todo:
        value, _ = todo.popitem()
        if isinstance(value, ir.BlockArgument) or is_used(value):
            continue
        op = value.owner
        if op.name in STRUCTURED:
            complete = False
        if op.name in STRUCTURED or any(map(is_used, op.results)) or not purity.is_pure(op):
            continue
        operands = list(op.operands)
        for result in op.results:
            todo.pop(result, None)
        erase(op)
        todo.update(dict.fromkeys(operands))
    return complete


def _entry(module: ir.Module) -> tuple[ir.Operation, Any]:
    function = functions(module)["main"]
    return function, function.regions[0].blocks[0]
