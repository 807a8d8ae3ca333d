"""Save programs: rules staged, constants in the module, a digest, one file in one step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from pullback._jax import context_of_its_own, ir
from pullback.autodiff.reachable_calls import met_in
from pullback.files import (
    container,
    describe,
    embedded_constants,
    merge_entries,
    platform_variants,
    refusals,
    vhlo_gaps,
)
from pullback.files.atomic_write import write_atomically
from pullback.files.errors import ArtifactError, NotPortableError, as_ours
from pullback.files.loaded_program import LOST_RULES, ORDER
from pullback.files.symbolic import save_load
from pullback.ir import locations
from pullback.passes.as_run import as_run
from pullback.program.record import positions_by_argument
from pullback.program.symbolic import SymbolicProgram
from pullback_runtime import _jax as runtime_jax
from pullback_runtime.call import _meshes
from pullback_runtime.files import _entries

if TYPE_CHECKING:
    from pullback.program.program import Program

# Shardy has no VHLO form: such ops are written as they are, as jax.export does.
SAVED_DIALECTS = ("stablehlo.", "func.", "builtin.", _meshes.SHARDY)


def save(
    program: Program | SymbolicProgram,
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    platforms: Sequence[str] | None = None,
    allow_refusals: bool = False,
    order: int | None = None,
) -> None:
    """Write a program to one portable file that can still be differentiated.

    Args:
      program: what to save; it is not changed.
      path: the file; it is replaced in one step.
      target: the StableHLO version to write for, at least '1.0.0'. By default the version of
        twelve weeks ago, so that a somewhat older jaxlib reads it.
      platforms: what the file must run on; the program must have been traced for these.
      allow_refusals: write a file also where a rule raises while it is traced, or a step has no
        rule in JAX. The file runs, and its derivative raises the rule's message.
      order: how often the file can be differentiated; any number of times by default. For programs
        whose derivatives need ever more rules, and so come to no end: by default the file has nine
        orders of these, or down to three where the rules are large or many.

    A program with symbolic dimensions takes `target` only.

    Raises:
      MissingRuleError: a derivative rule is missing, or raises for a derivative up to `order`, or
        without one for a first derivative. What may raise later is a warning.
      NotPortableError: the program calls back into Python.
      ArtifactError: the program cannot be written, or the file cannot.
    """
    options = SaveOptions(target, platforms, allow_refusals, order)
    write_atomically(path, _pieces(program, options))


def save_all(
    path: str | os.PathLike[str],
    /,
    *,
    target: str | None = None,
    platforms: Sequence[str] | None = None,
    allow_refusals: bool = False,
    order: int | None = None,
    **entries: Program,
) -> None:
    """Write several programs to one file, as entries with names.

    They share constants, rules and equal functions. `pb.load(path, entry="forces")` gives one of
    them, `pb.load(path)` the first; `program.entries` has all, by name.

    Args:
      path: the file; it is replaced in one step.
      target: as `save` takes it, like the three that follow; they hold for all entries.
      platforms: as `save` takes it. Without it, all must be for the same platforms.
      allow_refusals: as `save` takes it.
      order: as `save` takes it.
      entries: the programs by name. The first is the function `@main` of the file, which any tool
        runs; each other one is a public function of its name.

    Raises:
      ArtifactError: there are no entries; one is no program, or has symbolic dimensions; a name is
        no identifier, or that of another function of the file; the entries are for different
        platforms or meshes; or what `save` raises it for.
      MissingRuleError, NotPortableError: as of `save`. A note names the entry.
    """
    options = SaveOptions(target, platforms, allow_refusals, order)
    merge_entries.check(entries, vars(options))
    write_atomically(path, _pieces_of_all(entries, options))


def serialize(
    program: Program | SymbolicProgram,
    *,
    target: str | None = None,
    platforms: Sequence[str] | None = None,
    allow_refusals: bool = False,
    order: int | None = None,
) -> bytes:
    """Return the bytes that `save` writes; arguments and errors are the same."""
    return b"".join(_pieces(program, SaveOptions(target, platforms, allow_refusals, order)))


@dataclass(frozen=True)
class SaveOptions:
    """Hold the options of `save`."""

    target: str | None
    platforms: Sequence[str] | None
    allow_refusals: bool
    order: int | None


def _pieces(program: Program | SymbolicProgram, options: SaveOptions) -> list[Any]:
    """Return what `save` writes, as buffers; those of large constants are views of the arrays."""
    if isinstance(program, SymbolicProgram):
        return _symbolic_pieces(program, **vars(options))
    return _pieces_of_all({_entries.FIRST: program}, options)


def _pieces_of_all(programs: Mapping[str, Program], options: SaveOptions) -> list[Any]:
    """Return what `save_all` writes, as buffers."""
    _check_order(options.order)
    platforms = merge_entries.platforms_of(programs, options.platforms)
    held = embedded_constants.Held(context_of_its_own())
    prepared = {}
    for name, program in programs.items():
        with merge_entries.naming(name, programs):
            prepared[name] = _prepared(program, held, platforms, options)
    merge_entries.check_meshes({name: each.axes for name, each in prepared.items()})
    module, functions = merge_entries.merged({name: x.modules for name, x in prepared.items()})
    described = {name: each.described(functions[name]) for name, each in prepared.items()}
    description = describe.of_file(module, platforms, described)
    if axes := next(iter(prepared.values())).axes:
        description[_meshes.METADATA] = axes
    if checkpoints := vhlo_gaps.take_checkpoints(module):
        description[vhlo_gaps.CHECKPOINTS] = checkpoints
    vhlo_gaps.wrap_chlo(module)
    vhlo_gaps.drop_sharding_hints(module)
    _refuse_other_dialects(module)
    hidden = {f: programs[name].constants for name, each in functions.items() for f in each}
    with as_ours():
        embedding = embedded_constants.Embedding.of(hidden, module, held.arrays)
        return container.sealed(module, embedding, description, options.target)


@dataclass(frozen=True)
class _Prepared:
    """An entry to be written.

    Attributes:
      modules: its module with all rules, for each platform.
      description: what the metadata say of it.
      axes: the mesh that it runs on.
    """

    modules: list[ir.Module]
    description: dict[str, Any]
    axes: _meshes.Axes

    def described(self, functions: list[str]) -> dict[str, Any]:
        """Return the description with the functions of the file that it is, by platform."""
        if {*functions} == {_entries.FIRST}:
            return self.description
        return {**self.description, platform_variants.METADATA: functions}


def _prepared(
    program: Program, held: embedded_constants.Held, platforms: Sequence[str], options: SaveOptions
) -> _Prepared:
    """Stage the rules of an entry, and reject what a file cannot hold."""
    _refuse_what_is_around(program)
    chosen = map(program.for_platform, platforms)
    staged = [_staged(each, held, options.order) for each in chosen]
    reached = min((order for _, order in staged if order is not None), default=None)
    if not options.allow_refusals:
        met = met_in(staged[0][0])
        refusals.refuse_refusals(program, met, reached, options.order is None)
        refusals.refuse_missing(program, met, reached)
    around = program.rules.around(program.environment)  # of its rules as well
    description = describe.of_program(program)
    if reached is not None:
        description[ORDER] = reached
    if around.lost_after is not None:
        description[LOST_RULES] = around.lost_after or True
    return _Prepared([module for module, _ in staged], description, around.axes)


def _staged(
    program: Program, held: embedded_constants.Held, order: int | None
) -> tuple[ir.Module, int | None]:
    """Copy the module, with all of its rules, into a context that is dropped when the file is made.

    Also return how often it can be differentiated; None is any number of times.

    Large constants of the rules are its resources, which share the memory of their arrays.

    Raises: what says that the module cannot run in another process, or at all.
    """
    container.refuse_callbacks(program.module)
    as_run(program.module, simplify=False)
    module = held.copy(program.module)
    rules = program.rules
    arguments = positions_by_argument(program.in_tree, len(program.constants))
    with rules.lowering(held.lowering_of(rules)):
        order = rules.stage_all(module, order, arguments)
    container.refuse_callbacks(module)
    return module, order


def _symbolic_pieces(program: SymbolicProgram, target: str | None, **others: Any) -> list[Any]:
    if any(others.values()):
        raise ArtifactError(
            "a program with symbolic dimensions is saved with no option but `target`",
            do="leave out platforms, allow_refusals and order: for one platform save "
            "program.for_platform(…), and with the others program.with_shapes(…)",
        )
    with program.settings():
        return save_load.pieces(program, target)


def _check_order(order: int | None) -> None:
    if order is not None and not (isinstance(order, int) and order >= 1):
        raise ArtifactError(
            f"cannot save for derivatives up to order {order!r}",
            do="leave order= out, or give a number from 1 on",
        )


def _refuse_what_is_around(program: Program) -> None:
    if any(isinstance(value, jax.core.Tracer) for value in program.constants):
        raise NotPortableError(
            "a program that closes over values of a trace that still goes on cannot be saved",
            where="in pb.trace, called inside of jax.jit or of another transformation",
            do="pass these values as arguments, or trace the program outside",
        )
    if program._shares_values:
        raise NotPortableError(
            "a program that makes values equal on all devices (as psum does), or uses such values, "
            "cannot be saved in the body of a checked shard_map: no file says which they are",
            where="in pb.trace, called in the body",
            do="save the program of the function that calls shard_map",
        )


def _refuse_other_dialects(module: ir.Module) -> None:
    others = runtime_jax.operations_where(module, lambda op: not op.name.startswith(SAVED_DIALECTS))
    if others:
        raise ArtifactError(
            f"`{others[0].name}` has no portable form",
            where=locations.user_line_of(others[0]),
            do="a saved program holds StableHLO and CHLO only; lower this op first",
        )
