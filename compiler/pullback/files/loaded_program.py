"""Make programs of modules in files: rules, platforms, and the types that a file declares."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pullback._jax import ir
from pullback.files import platform_variants
from pullback.files.errors import ArtifactError, as_ours
from pullback.ir.environment import Environment
from pullback.ir.ops import BATCHING_RULES
from pullback.passes.base import NoRules
from pullback.program.program import Program
from pullback.program.provenance import ModuleSource, PlatformModule
from pullback.program.record import Interface
from pullback_runtime._lazy_values import Lazy
from pullback_runtime.call import _avals, _meshes
from pullback_runtime.call._backend import put_to_keep
from pullback_runtime.files import _artifact, _entries, _pattern, _variants
from pullback_runtime.files._load import flat_trees
from pullback_runtime.ir import _module

ORDER = "order"
"""Metadata key of a file: how often its program can be differentiated, if that is limited."""

LOST_RULES = "lost_rules"
"""Metadata key of a file: whether its program may have lost rules before it was saved."""


@dataclasses.dataclass(frozen=True)
class LoadedRules(NoRules):
    """The rule table of a loaded program: all its rules are in the module already."""

    order: int | None = None  # how often the program can be differentiated, if not any number

    def stage_all(
        self, module: ir.Module, order: int | None = None, arguments: Sequence[Sequence[int]] = ()
    ) -> int | None:
        """Stage none; for as many derivatives as there are rules, or as are asked for."""
        wanted = super().stage_all(module, order, arguments)
        return min((each for each in (wanted, self.order) if each is not None), default=None)

    def of_derivative(self) -> LoadedRules:
        """Return the rule table of the derivative, which has one order less."""
        return LoadedRules(self.order - 1 if self.order else self.order)


def of_file(opened: _artifact.Opened, entry: str) -> Program:
    """Make the program of an entry of a saved file, with the others beside it."""
    make = functools.partial(_of_entry, opened, _entries.Placed())
    entries = _entries.EntriesByName(opened.entries, make)
    return entries[_entries.find(entry, opened.entries)]


def _of_entry(
    opened: _artifact.Opened,
    placed: _entries.Placed,
    entries: Mapping[str, Program],
    name: str,
) -> Program:
    program = of_platforms(opened.entered(name), placed, is_shared=len(entries) > 1)
    return dataclasses.replace(program, entries=entries)


def of_platforms(
    opened: _artifact.Opened,
    placed: _entries.Placed | None = None,
    is_shared: bool = False,
    lost_at: tuple[str, ...] = (),
) -> Program:
    """Make a program of a module with a function for each platform.

    A function takes the constants, then the arguments.
    The variant for the first platforms is made at once, the others on demand.

    Args:
      placed: the constants that are on the device already.
      is_shared: the module has functions of other programs as well.
      lost_at: as in Environment.
    """
    module = opened.module
    constants = _placed_later(opened.constants, placed or _entries.Placed())
    entries = _variants.entries_of(opened.metadata)
    lost_after = 0 if lost_at else None

    def of_module(module: ir.Module, platforms: tuple[str, ...]) -> Program:
        return variant(opened, module, platforms, constants, lost_after, lost_at)

    groups = platform_variants.groups(module, entries) or [("main", ("cpu",))]
    (first, platforms), *others = groups
    if not others and not is_shared:
        return of_module(module, platforms)

    def alone(entry: str, platforms: tuple[str, ...]) -> Program:
        return of_module(platform_variants.alone(module, entry), platforms)

    program = alone(first, platforms)
    if not others:
        return program
    further = Lazy(len(others), lambda: [alone(*each)._lowered for each in others])
    source = ModuleSource.of(Lazy(len(groups), lambda: (program._lowered, *further)))
    return dataclasses.replace(program, _further=further, _source=source)


def variant(
    opened: _artifact.Opened,
    module: ir.Module,
    platforms: tuple[str, ...],
    constants: Sequence[jax.Array] = (),
    lost_after: int | None = None,
    lost_at: tuple[str, ...] = (),
) -> Program:
    """Make a program for platforms that share one module.

    Args:
      constants: of the file, on the device.
      lost_after: as in Environment; None where the file says.
      lost_at: as in Environment.
    """
    metadata = opened.metadata or {}
    interface = functools.cache(functools.partial(_interface, opened, len(constants)))
    if not opened.is_whole:
        interface(module)
    lost, order = BATCHING_RULES in module.operation.attributes, metadata.get(ORDER)
    environment = Environment(
        platforms,
        only_debugs=False,  # nothing is known of callbacks that come with a module
        axes=_meshes.axes_of(metadata, module),
        has_batching_rules=lost,
        lost_batching_rules=lost,
        lost_after=_lost_after(metadata) if lost_after is None else lost_after,
        lost_at=lost_at,
    )
    rules: Any = LoadedRules(order if isinstance(order, int) else None)
    with as_ours():
        pattern = _pattern.of_metadata(metadata)
    made = PlatformModule(module, rules, environment)
    return Program(interface, constants, made, pattern=pattern)


def _lost_after(metadata: Mapping[str, Any]) -> int | None:
    """Return of how many derivatives a file has all rules; True in older files is none."""
    found = metadata.get(LOST_RULES)
    if found is True:
        return 0
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def _placed_later(constants: Sequence[np.ndarray], placed: _entries.Placed) -> Sequence[jax.Array]:
    """Return the constants as a lazy sequence of JAX arrays, made on first use."""

    def place(arrays: Sequence[np.ndarray]) -> Sequence[jax.Array]:
        found: Sequence[jax.Array] = put_to_keep(arrays, may_alias=True)
        return found

    return Lazy(len(constants), lambda: placed(constants, place)) if constants else ()


def _interface(opened: _artifact.Opened, hidden: int, module: ir.Module) -> Interface:
    """Return the interface of `@main`, with what the file says of its arguments and results.

    Raises: ArtifactError if the file's description does not fit the module.
    """
    with as_ours(), _artifact.refusing_damage():
        in_avals, out_avals = _signature(module, opened, hidden)
        in_tree, out_tree = opened.trees() or flat_trees(len(in_avals), len(out_avals))
        if (in_tree.num_leaves, out_tree.num_leaves) != (len(in_avals), len(out_avals)):
            raise ArtifactError(
                f"the file's trees have {in_tree.num_leaves} arguments and {out_tree.num_leaves} "
                f"results, and its @main has {len(in_avals)} and {len(out_avals)}",
                do="save the program again",
            )
        return Interface(
            in_tree, out_tree, in_avals, out_avals, paths_of(in_tree, opened.metadata or {})
        )


def _signature(module: ir.Module, opened: _artifact.Opened, hidden: int) -> Any:
    """Return the types of argument and result leaves: the saved ones, if they fit the module's."""
    in_avals, out_avals = _module.signature(_module.find_entry(module, "main"), "main")
    return tuple(map(_as_saved, opened.types(), (in_avals[hidden:], out_avals)))


def _as_saved(described: Any, found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the module's types, with those of PRNG keys as saved."""
    if described is None:
        return found
    pairs = zip(described, found, strict=True)
    return tuple(
        aval if saved in (None, _avals.describe(aval)) else _saved_aval(saved, aval)
        for saved, aval in pairs
    )


def _saved_aval(described: Any, found: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    saved = _avals.restore(described)
    if _avals.is_key(saved):
        return saved
    raise ArtifactError(
        f"the file declares an argument or result of type {saved}, and its module has {found}",
        do="save the program again",
    )


def paths_of(in_tree: Any, metadata: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the arguments' leaves in the file, or else numbered names."""
    saved = metadata.get("arguments")
    if isinstance(saved, list) and len(saved) == in_tree.num_leaves:
        return tuple(map(str, saved))
    return tuple(f"argument {number}" for number in range(in_tree.num_leaves))
