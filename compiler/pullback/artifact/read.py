"""Load a program from a file: its rules are functions of the module, so no Python is needed."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pullback import _jax
from pullback._edits import exchange_entry
from pullback._errors import VerificationError
from pullback._interface import Interface
from pullback._jax import ir
from pullback._program import Program
from pullback.artifact import exported, high_level, symbolic, variants
from pullback.artifact.errors import ArtifactError, as_ours
from pullback.dialect.ops import BATCHING_RULES
from pullback.dialect.verify import verify
from pullback.passes.base import NoRules
from pullback_runtime import _artifact, _avals, _meshes, _module, _symbolic, _variants
from pullback_runtime._backend import put_to_keep
from pullback_runtime._lazy import Lazy
from pullback_runtime._load import flat_trees


@dataclasses.dataclass(frozen=True)
class LoadedRules(NoRules):
    """The rule table of a loaded program: all its rules are in the module already."""

    platforms: tuple[str, ...] = ("cpu",)
    host_callbacks: tuple[Any, ...] = ()
    keepalives: tuple[Any, ...] = ()
    axes: _meshes.Axes = ()
    lost_batching_rules: bool = False

    @property
    def has_batching_rules(self) -> bool:
        """The program had some, of the user's, which a file cannot hold."""
        return self.lost_batching_rules

    @property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices of this process that the program runs on, if it runs on several."""
        return _meshes.here(self.axes, None)


def load(source: str | os.PathLike[str] | bytes, *, entry: str = "main") -> Any:
    """A program from a file, or from its bytes; a SymbolicProgram where dimensions are symbols.

    Reads what `save` wrote, any StableHLO module (text, bytecode or portable artifact), and what
    `jax.export` serialised. Loading runs no code that the file names.

    Args:
      entry: the function of a StableHLO module that the program is; it is called @main then.

    Raises:
      ArtifactError: the file is damaged, too new, holds no module, or one whose derivative ops
        break a constraint of the dialect; or it is of one program, and `entry` is another.
      ModuleError: the module has no such function.
    """
    with as_ours():
        opened = _artifact.open_module(source, _jax.context())
        with _artifact.refusing_damage():
            if entry != "main":
                return _program_of(_entered(opened, entry))
            if opened.exported is not None:
                return exported.from_opened(opened)
            return _program_of(opened)


def of_module(module: ir.Module, entry: str) -> Program:
    """The program of a module in our context, which becomes part of it, constants and all."""
    with as_ours(), _artifact.refusing_damage():
        opened = _artifact.opened(module)
        if entry != "main":
            opened = _entered(dataclasses.replace(opened, metadata=None), entry)
        program: Program = _program_of(opened)
        return program


def _entered(opened: _artifact.Opened, entry: str) -> _artifact.Opened:
    """With this function as the entry of a module, of which a file says no more."""
    if opened.exported is not None or opened.metadata is not None:
        raise ArtifactError(
            f"the file holds a program, which is its @main, and not @{entry}",
            do="leave out the entry; it is for modules that pullback or jax.export did not save",
        )
    _module.find_entry(opened.module, entry)
    exchange_entry(opened.module, entry)
    return opened


def _program_of(opened: _artifact.Opened) -> Any:
    metadata = opened.metadata or {}
    if _symbolic.METADATA in metadata:
        return symbolic.load(opened.module, opened.trees(), metadata)
    if not metadata:  # a module of others: what else calls @main would not fit derivatives
        _module.make_private(opened.module, keep="main")
    entries = _variants.entries_of(metadata)
    if opened.has_composites:
        high_level.restore(opened.module, erase=len({*entries.values()}) < 2)
        if not opened.is_whole:  # what save wrote, it has verified
            _verify(opened.module)
    if marked := metadata.get(high_level.CHECKPOINTS):
        high_level.put_checkpoints(opened.module, marked)
    return as_program(opened, entries)


def _verify(module: ir.Module) -> None:
    try:
        verify(module)
    except VerificationError as error:
        raise ArtifactError(
            error.message,
            where=error.where,
            do="correct the module; docs/dialect.md lists the constraints by their labels",
        ) from error


def as_program(opened: _artifact.Opened, entries: Mapping[str, str]) -> Program:
    """The program of a module in which an entry for each platform takes constants and arguments.

    All but the variant for the first platforms are made when they are asked for.
    """
    module, constants = opened.module, _placed_later(opened.constants)
    (first, platforms), *others = variants.groups(module, entries) or [("main", ("cpu",))]
    if not others:
        return variant(opened, module, platforms, constants)

    def alone(entry: str, platforms: tuple[str, ...]) -> Program:
        return variant(opened, variants.alone(module, entry), platforms, constants)

    further = Lazy(len(others), lambda: [alone(*each) for each in others])
    return dataclasses.replace(alone(first, platforms), variants=further)


def variant(
    opened: _artifact.Opened,
    module: ir.Module,
    platforms: tuple[str, ...],
    constants: Sequence[jax.Array] = (),
) -> Program:
    """The program for some of its platforms, for which it is the same."""
    metadata = opened.metadata or {}
    read = functools.partial(_interface, module, opened, len(constants))
    interface = functools.cache(read) if opened.is_whole else read()
    lost = BATCHING_RULES in module.operation.attributes
    rules = LoadedRules(platforms, axes=_meshes.axes_of(metadata, module), lost_batching_rules=lost)
    return Program(module, interface, constants, rules)  # type: ignore[arg-type]


def _placed_later(constants: Sequence[np.ndarray]) -> Sequence[jax.Array]:
    """The constants as arrays of JAX, from when one is used."""
    return Lazy(len(constants), lambda: put_to_keep(constants, may_alias=True)) if constants else ()


def _interface(module: ir.Module, opened: _artifact.Opened, hidden: int) -> Interface:
    """What the file says of the arguments and results of `@main`, which alone is sure.

    Raises: ArtifactError where it does not fit.
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
            in_tree, out_tree, in_avals, out_avals, _paths(in_tree, opened.metadata or {})
        )


def _signature(module: ir.Module, opened: _artifact.Opened, hidden: int) -> Any:
    """Types of the leaves: as saved where they fit the module's, which alone is sure."""
    in_avals, out_avals = _module.signature(_module.find_entry(module, "main"), "main")
    return tuple(map(_as_saved, opened.types(), (in_avals[hidden:], out_avals)))


def _as_saved(described: Any, found: tuple[Any, ...]) -> tuple[Any, ...]:
    """The types that the module has, or says in another way; all of them where none are saved."""
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


def _paths(in_tree: Any, metadata: dict[str, Any]) -> tuple[str, ...]:
    saved = metadata.get("arguments")
    if isinstance(saved, list) and len(saved) == in_tree.num_leaves:
        return tuple(map(str, saved))
    return tuple(f"argument {number}" for number in range(in_tree.num_leaves))
