"""Programs for several platforms in one file: an entry for each, all other functions shared.

`@main` is the entry of the first platform, and of all for which the program lowers to the same;
the entries of the others are private functions, so that other StableHLO tools pass them by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback._jax import ir
from pullback.frontend import link
from pullback.ir.modules import clone, take_entry
from pullback.ir.symbols import erase_unreachable, make_private
from pullback_runtime.files._variants import METADATA as METADATA
from pullback_runtime.ir import _module


def merged(modules: Sequence[ir.Module]) -> tuple[ir.Module, list[str]]:
    """Merge modules into the first one; return it, and the name of each module's entry."""
    first, *others = modules
    entries = ["main", *(link.merge(first, other, "main") for other in others)]
    symbols = ir.SymbolTable(first.operation)
    for entry in set(entries) - {"main"}:
        make_private(symbols[entry])
    return first, entries


def groups(module: ir.Module, entries: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each distinct entry of the module, with the platforms that it is for.

    Raises: ModuleError if an entry is missing.
    """
    names = dict.fromkeys(entries.values())
    if names.keys() - {"main"}:
        for name in names:
            _module.find_entry(module, name)
    return [(name, tuple(p for p, e in entries.items() if e == name)) for name in names]


def alone(module: ir.Module, entry: str) -> ir.Module:
    """Return a copy of the module in which one entry is `@main`, and the others are gone.

    Raises: ModuleError if the entry is missing.
    """
    _module.find_entry(module, entry)
    copy = clone(module)
    _module.make_private(copy, keep=entry)
    if entry == "main":
        erase_unreachable(copy)
    else:
        take_entry(copy, entry)
    return copy
