"""Facts about the halves of a split: which residuals are arguments, which results are active."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from pullback._jax import ir
from pullback.autodiff.zeros import is_zero
from pullback.ir.modules import clone
from pullback.ir.purity import is_used
from pullback.ir.regions import terminator
from pullback.ir.symbols import functions
from pullback.passes import manager
from pullback.passes.entry_edits import SelectResults
from pullback.program.derivation import Signature, Split
from pullback.program.platform_variants import after, other_residuals

Sources = tuple[int | None, ...]
"""For each residual, the leaf of the arguments that it is, if it is one."""


def without_arguments(split: Split[Any]) -> tuple[Split[Any], Sources]:
    """Return a split whose forward program returns no arguments as residuals, and their sources."""
    forward, linear = split
    out, residuals = Signature.of(forward).out
    sources = sources_of(forward)
    rest = [slot for slot, leaf in zip(residuals, sources, strict=True) if leaf is None]
    kept, out_tree = jax.tree.flatten((out, rest))
    select = SelectResults(tuple(slot.position for slot in kept))
    module = clone(forward.module)
    manager.run_stages(module, (select,), forward.rules)
    avals = tuple(slot.aval for slot in kept)
    paths = list(linear.arg_paths)
    for i, leaf in enumerate(sources):
        if leaf is not None:
            paths[i] = f"the residual {forward.arg_paths[leaf]}"

    def again(other: Any) -> Any:
        found, leaves = without_arguments(Split(other, linear))
        if leaves != sources:
            raise other_residuals(forward, other)
        return found.forward

    ahead = _with_interface(forward, out_tree=out_tree, out_avals=avals)
    ahead = after(forward, again, dataclasses.replace(ahead, module=module))
    return Split(ahead, _with_interface(linear, arg_paths=tuple(paths))), sources


def sources_of(forward: Any) -> Sources:
    """Return, for each residual of a forward half, the leaf of the arguments that it is."""
    _, residuals = Signature.of(forward).out
    returned = list(terminator(_body(forward)).operands)
    hidden = len(forward.constants)
    return tuple(_argument(returned[slot.position], hidden) for slot in residuals)


def _with_interface(program: Any, **changes: Any) -> Any:
    interface = dataclasses.replace(program.interface, **changes)
    return dataclasses.replace(program, interface=interface)


def _argument(value: Any, hidden: int) -> int | None:
    position = value.arg_number if isinstance(value, ir.BlockArgument) else -1
    return position - hidden if position >= hidden else None


def takes_cotangents(linear: Any, out: Any) -> list[bool]:
    """Return, for each leaf of a result, whether the half of reverse mode uses its cotangent.

    It uses none of an integer.
    """
    block, cotangents = _body(linear), _for_leaves(out, Signature.of(linear).args[1])
    return [slot is not None and is_used(block.arguments[slot.position]) for slot in cotangents]


def gives_tangents(linear: Any, out: Any) -> list[bool]:
    """Return, for each leaf of a result, whether its tangent in forward mode may be nonzero."""
    table, tangents = functions(linear.module), terminator(_body(linear)).operands
    slots = _for_leaves(out, Signature.of(linear).out)
    return [slot is not None and not is_zero(tangents[slot.position], table) for slot in slots]


def _for_leaves(out: Any, slots: Any) -> list[Any]:
    """Return the slot for each leaf of a result; trees of tangents have None for integers."""
    return list(jax.tree.structure(out).flatten_up_to(slots))


def _body(program: Any) -> Any:
    (block,) = functions(program.module)["main"].regions[0].blocks
    return block
