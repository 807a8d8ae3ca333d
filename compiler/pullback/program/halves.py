"""Facts about the halves of a split: which residuals are arguments, which results are active."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from pullback._jax import ir
from pullback.autodiff.zeros import is_zero
from pullback.ir.modules import entry_of
from pullback.ir.purity import is_used
from pullback.ir.regions import terminator
from pullback.ir.symbols import functions
from pullback.passes.entry_edits import SelectResults
from pullback.program.derivation import Signature, Split
from pullback.program.provenance import Check, PlatformModule, other_residuals

Sources = tuple[int | None, ...]
"""For each residual, the leaf of the arguments that it is, if it is one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Forwards(Check):
    """Check which leaves of the arguments the residuals of a forward half are.

    Attributes:
      forward: the half where the derivative was made.
      residuals: their positions among results.
    """

    forward: PlatformModule
    residuals: tuple[int, ...]
    hidden: int
    sources: Sources

    def check(self, lowered: PlatformModule) -> None:
        """Raise PullbackError if they are others, as they may be on another platform."""
        if _sources(lowered.module, self.residuals, self.hidden) != self.sources:
            raise other_residuals(self.forward, lowered)


def without_arguments(split: Split[Any]) -> tuple[Split[Any], Sources]:
    """Return a split whose forward program returns no arguments as residuals, and their sources."""
    forward, linear = split
    out, residuals = Signature.of(forward).out
    sources = sources_of(forward)
    rest = [slot for slot, leaf in zip(residuals, sources, strict=True) if leaf is None]
    kept, out_tree = jax.tree.flatten((out, rest))
    select = SelectResults(tuple(slot.position for slot in kept))
    positions = tuple(slot.position for slot in residuals)
    check = Forwards(forward._lowered, positions, len(forward.constants), sources)
    avals = tuple(slot.aval for slot in kept)
    interface = dataclasses.replace(forward._interface, out_tree=out_tree, out_avals=avals)
    paths = list(linear.arg_paths)
    for i, leaf in enumerate(sources):
        if leaf is not None:
            paths[i] = f"the residual {forward.arg_paths[leaf]}"
    named = dataclasses.replace(linear._interface, arg_paths=tuple(paths))
    ahead = forward._after((check, select), interface)
    return Split(ahead, dataclasses.replace(linear, interface=named)), sources


def sources_of(forward: Any) -> Sources:
    """Return, for each residual of a forward half, the leaf of the arguments that it is."""
    positions = [slot.position for slot in Signature.of(forward).out[1]]
    return _sources(forward.module, positions, len(forward.constants))


def _sources(module: ir.Module, residuals: Sequence[int], hidden: int) -> Sources:
    returned = list(terminator(entry_of(module)[1]).operands)
    return tuple(_argument(returned[i], hidden) for i in residuals)


def _argument(value: Any, hidden: int) -> int | None:
    position = value.arg_number if isinstance(value, ir.BlockArgument) else -1
    return position - hidden if position >= hidden else None


def takes_cotangents(linear: Any, out: Any) -> list[bool]:
    """Return, for each leaf of a result, whether the half of reverse mode uses its cotangent.

    It uses none of an integer.
    """
    block, cotangents = entry_of(linear.module)[1], _for_leaves(out, Signature.of(linear).args[1])
    return [slot is not None and is_used(block.arguments[slot.position]) for slot in cotangents]


def gives_tangents(linear: Any, out: Any) -> list[bool]:
    """Return, for each leaf of a result, whether its tangent in forward mode may be nonzero."""
    table, tangents = functions(linear.module), terminator(entry_of(linear.module)[1]).operands
    slots = _for_leaves(out, Signature.of(linear).out)
    return [slot is not None and not is_zero(tangents[slot.position], table) for slot in slots]


def _for_leaves(out: Any, slots: Any) -> list[Any]:
    """Return the slot for each leaf of a result; trees of tangents have None for integers."""
    return list(jax.tree.structure(out).flatten_up_to(slots))
