"""Edits of a module and its entry: copies, another entry, fewer functions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pullback._jax import ir
from pullback.ir.symbols import erase_unreachable, functions, make_public
from pullback_runtime.ir._erasure import erase


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


def replace_content(module: ir.Module, other: ir.Module) -> None:
    """Replace the functions and attributes of a module with copies of those of another."""
    for op in list(module.body.operations):
        erase(op.operation)
    with module.context, ir.Location.unknown(module.context):
        for name, attribute in other.operation.attributes.items():
            module.operation.attributes[name] = attribute
        for op in other.body.operations:
            op.operation.clone(ip=ir.InsertionPoint(module.body))


MOST_ELEMENTS = 64
"""A constant with more elements is elided where IR is shown. Traced functions have none: arrays
that they close over are arguments from this size on."""


def text_of(module: ir.Module, debug_info: bool = False, most_elements: int | None = None) -> str:
    """Return a module as text, with locations if `debug_info`.

    Constants of more than `most_elements` elements are elided, of which no value is the same
    throughout; by default none are. A text with elided constants cannot be run.
    """
    return module.operation.get_asm(
        enable_debug_info=debug_info,
        assume_verified=True,
        large_elements_limit=most_elements,
        large_resource_limit=None if most_elements is None else _DIGITS * most_elements,
    )


_DIGITS = 8
"""Counts the digits that MLIR prints for an element of a resource, such as a 32-bit float."""

_RESOURCES = "dialect_resources:"


def is_elided(text: str) -> bool:
    """Return True if `text_of` has left out the elements of a constant."""
    return "dense_resource<__elided__>" in text or (
        "dense_resource<" in text and _RESOURCES not in text
    )


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
    return ir.FunctionType(
        ir.TypeAttr(entry_of(module)[0].attributes["function_type"]).value
    ).results


def drop_function(module: ir.Module, name: str) -> None:
    """Erase @name, and what only it refers to."""
    erase(functions(module)[name])
    erase_unreachable(module)


def entry_of(module: ir.Module) -> tuple[ir.Operation, Any]:
    """Return the entry @main and its block."""
    function = functions(module)["main"]
    return function, function.regions[0].blocks[0]
