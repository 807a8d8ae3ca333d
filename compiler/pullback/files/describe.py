"""Describe programs in the metadata of their file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pullback._jax import ir
from pullback.files import container
from pullback.files.errors import as_ours
from pullback.ir import ops
from pullback_runtime.call import _avals
from pullback_runtime.files import _entries, _pattern

if TYPE_CHECKING:
    from pullback.program.program import Program


def of_file(
    module: ir.Module, platforms: Sequence[str], entries: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return the metadata: those of the first entry, and what others have unlike these."""
    first = next(iter(entries.values()))
    description = {
        **container.versions(),
        **first,
        "rules": ops.rule_inventory(module),
        "platforms": list(platforms),
    }
    if [*entries] != [_entries.FIRST]:
        description[_entries.METADATA] = {
            name: _entries.differences(first, own) for name, own in entries.items()
        }
    return description


def of_program(program: Program) -> dict[str, Any]:
    """Return what the metadata say of one entry: its trees, types, arguments and pattern."""
    return {
        **container.described_trees(program),
        **_describe_types(program),
        "arguments": list(program.arg_paths),
        **({_pattern.METADATA: _pattern.describe(program.pattern)} if program.pattern else {}),
    }


def _describe_types(program: Program) -> dict[str, Any]:
    """Describe the types of arguments and results, if PRNG keys are among them; else nothing.

    The module does not tell keys from their words.
    """
    sides = {"in_avals": program.in_avals, "out_avals": program.out_avals}
    if not any(map(_avals.is_key, itertools.chain(*sides.values()))):
        return {}
    with as_ours():
        return {side: list(map(_avals.describe, avals)) for side, avals in sides.items()}
