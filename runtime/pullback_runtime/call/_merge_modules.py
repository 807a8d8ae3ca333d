"""Merge a handle's module into the module JAX is lowering, once per lowering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pullback_runtime._jax import ir
from pullback_runtime.call._callbacks import shift_callbacks
from pullback_runtime.call._handle import ModuleHandle
from pullback_runtime.call._meshes import MESH
from pullback_runtime.files._custom_calls import check_registered, may_be_in
from pullback_runtime.ir import _module


def merge(context: Any, handle: ModuleHandle, platform: str | None = None) -> str:
    """Merge a handle's module into the one JAX is lowering, once; return its entry's new name.

    Raises: CompileError for a custom call that the platform does not have, unless JAX lowers for
      export.
    """
    merged = context.cached_primitive_lowerings
    key = ("pullback_runtime", handle)
    if key not in merged:
        content = handle.load()
        source = _module.parse(content, context.context)
        if may_be_in(content) and not context.lowering_parameters.for_export:
            check_registered(source, platform)
        shift_callbacks(source, len(context.host_callbacks))
        context.host_callbacks.extend(handle.host_callbacks)
        context.keepalives.extend(handle.keepalives)
        merged[key] = _move_symbols(context, source, handle.entry)
    return merged[key]


def _move_symbols(context: Any, source: ir.Module, entry: str) -> str:
    """Rename clashing symbols, make all private, and move them; return the entry's name."""
    taken, symbols = context.symbol_table, ir.SymbolTable(source.operation)
    renamed = _rename_clashes(source, symbols, taken, entry)
    with context.context:
        private = ir.StringAttr.get("private")
    for op in list(source.body.operations):
        if op.operation.name == MESH and op.sym_name.value in taken:
            continue  # the same mesh is there already
        if _module.is_function(op):
            op.attributes["sym_visibility"] = private
            _drop_entry_attributes(op)
        context.module.body.append(op)
        taken.insert(op)
    return renamed.get(entry, entry)


def _rename_clashes(
    source: ir.Module, symbols: ir.SymbolTable, taken: ir.SymbolTable, entry: str
) -> dict[str, str]:
    renamed: dict[str, str] = {}
    for op in source.body.operations:
        name = op.sym_name.value
        if name not in taken and name != "main":
            continue
        if _is_same_mesh(op, taken):
            continue
        base = "pullback_main" if name == entry else name
        fresh = next(n for n in _candidates(base) if n not in taken and n not in symbols)
        symbols.set_symbol_name(op, fresh)
        renamed[name] = fresh
    for old, new in renamed.items():
        symbols.replace_all_symbol_uses(old, new, source.operation)
    return renamed


def _candidates(base: str) -> Iterator[str]:
    yield base
    number = 0
    while True:
        yield f"{base}_{number}"
        number += 1


def _is_same_mesh(op: Any, taken: ir.SymbolTable) -> bool:
    if op.operation.name != MESH or op.sym_name.value not in taken:
        return False
    present = taken[op.sym_name.value]
    return present.operation.name == MESH and str(present) == str(op)


def _drop_entry_attributes(op: Any) -> None:
    """Drop argument and result attributes, such as aliasing: they are for XLA's entry point."""
    for name in ("arg_attrs", "res_attrs"):
        if name in op.attributes:
            del op.attributes[name]
