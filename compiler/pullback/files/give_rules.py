"""Give functions of a foreign module the rules that were lost on its way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pullback._jax import ir
from pullback.files import container, loaded_program
from pullback.files.errors import ArtifactError
from pullback.frontend import link
from pullback.frontend.trace import trace
from pullback.ir import build, ops
from pullback.ir.modules import clone
from pullback.ir.regions import replace_op
from pullback.ir.symbols import (
    erase_unreachable,
    functions,
    make_private,
    names_in,
)
from pullback_runtime.call._arguments import spell
from pullback_runtime.files import _artifact
from pullback_runtime.ir import _module

_MARK = "pullback.gets_rule"
"""Marks a call that will be replaced: the function that replaces it must not share its function."""


def give(
    opened: _artifact.Opened, module: ir.Module, rules: Mapping[str, Callable[..., Any]]
) -> _artifact.Opened:
    """Replace calls by calls of the functions of JAX in `rules`, which have rules, in place.

    Args:
      opened: the file that the module is of.
      rules: by name of a function, or of a composite, of the module.

    Returns: the file, which says how often the rules can be differentiated, if that is limited.

    Raises:
      ArtifactError: the module calls no function of a name; or the function given for it returns
        other types, or closes over arrays.
    """
    calls = ops.calls_by_name(module)
    if unknown := [name for name in rules if name not in calls]:
        raise ArtifactError(
            f"rules= has one for `{unknown[0]}`, and the module calls no function of that name",
            do=f"give rules to {', '.join(sorted(calls)) or 'none: the module calls no function'}",
        )
    chosen = [(name, op) for name in rules for op in calls[name]]
    for _, op in chosen:
        op.attributes[_MARK] = ir.UnitAttr.get(module.context)
    made: dict[Any, tuple[str, int | None]] = {}
    for name, op in chosen:
        types = tuple(v.type for v in op.operands)
        if (name, types) not in made:
            made[name, types] = _merged(module, name, op, rules[name])
        with build.inserting(ir.InsertionPoint(op), op.location):
            new = build.call(made[name, types][0], list(op.operands), [r.type for r in op.results])
        replace_op(op, list(new.results))
    erase_unreachable(module)
    order = min((order for _, order in made.values() if order is not None), default=None)
    if order is None:
        return opened
    return dataclasses.replace(opened, metadata={loaded_program.ORDER: order})


def _merged(
    module: ir.Module, name: str, op: ir.Operation, function: Callable[..., Any]
) -> tuple[str, int | None]:
    """Copy a function, with its rules, into the module; return its name, and its order."""
    replaced = names_in(op)[0]
    assert replaced is not None  # the function called, or the decomposition
    arguments, wanted = _module.signature(_module.find_entry(module, replaced), replaced)
    program = trace(function)(*arguments)
    if _spelt(program.out_avals) != _spelt(wanted):
        raise ArtifactError(
            f"the function that rules= has for `{name}` returns {_spelt(program.out_avals)}, and "
            f"that of the module returns {_spelt(wanted)}",
            do="return the same types",
        )
    if len(program.constants):
        raise ArtifactError(
            f"the function that rules= has for `{name}` closes over arrays",
            do="make them in the function, such as with jnp.arange",
        )
    staged = clone(program.module)
    order = program.rules.stage_all(staged)
    container.refuse_callbacks(staged)
    merged = link.merge(module, staged, "main")
    make_private(functions(module)[merged])
    return merged, order


def _spelt(avals: Any) -> str:
    return ", ".join(map(spell, avals))
