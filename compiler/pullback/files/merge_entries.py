"""Merge the programs of a file into one module: an entry for each, all other functions shared."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pullback._jax import ir
from pullback.errors import PullbackError
from pullback.files import platform_variants
from pullback.files.errors import ArtifactError
from pullback.ir.symbols import functions as functions_of, make_private, make_public
from pullback.passes.manager import run_stages
from pullback.program.derivation import PREPARE
from pullback.program.record import AnyProgram
from pullback.program.symbolic import SymbolicProgram
from pullback_runtime.call import _meshes
from pullback_runtime.files._entries import FIRST
from pullback_runtime.ir._erasure import erase

if TYPE_CHECKING:
    from pullback.program.program import Program


def check(entries: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise ArtifactError for entries that no file can have.

    Args:
      options: those of `save_all`, whose names Python does not forward as those of entries.
    """
    taken = [name for name, value in options.items() if isinstance(value, AnyProgram)]
    if taken:
        raise ArtifactError(
            f"no entry can have the name `{taken[0]}`: it is an option of save_all",
            do="give the entry another name",
        )
    if not entries:
        raise ArtifactError(
            "there are no entries to save",
            do="name at least one: save_all(path, energy=program, forces=program.grad())",
        )
    for number, (name, program) in enumerate(entries.items()):
        _check_name(name, number)
        _check_program(name, program)


def _check_name(name: str, number: int) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise ArtifactError(
            f"`{name}` cannot be the name of an entry: it is no identifier",
            do="use letters, digits and underscores, with no digit in front",
        )
    if name == FIRST and number:
        raise ArtifactError(
            f"`{name}` can be the name of the first entry only: it is the function @main",
            do="give the entry another name, or put it first",
        )


def _check_program(name: str, program: Any) -> None:
    if isinstance(program, SymbolicProgram):
        raise ArtifactError(
            f"the entry `{name}` has symbolic dimensions: it can be saved by itself only",
            where=repr(program),
            do="call its own save, or give sizes: program.with_sizes(…)",
        )
    if not isinstance(program, AnyProgram):
        raise ArtifactError(
            f"the entry `{name}` is no program: it is of type {type(program).__name__}",
            do="make one: pb.trace(function)(*arguments)",
        )


@contextlib.contextmanager
def naming(name: str, entries: Mapping[str, Any]) -> Iterator[None]:
    """Run the body, and name the entry in its errors if there are several."""
    try:
        yield
    except PullbackError as error:
        if len(entries) > 1:
            error.add_note(f"so it is for the entry `{name}`")
        raise


def platforms_of(
    entries: Mapping[str, Program], platforms: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the platforms to write for; raise ArtifactError unless all entries are for these."""
    chosen = (platforms,) if isinstance(platforms, str) else platforms or None
    for name, program in entries.items():
        missing = {*(chosen or ())} - {*program.platforms}
        if missing:
            with naming(name, entries):
                raise ArtifactError(
                    f"the program was traced for {', '.join(sorted(program.platforms))}, not for "
                    f"{', '.join(sorted(missing))}",
                    do="trace it again with platforms=…",
                )
    of_all = {name: program.platforms for name, program in entries.items()}
    if chosen is None and len({*map(frozenset, of_all.values())}) > 1:
        raise ArtifactError(
            "the entries are for different platforms",
            where=_each({name: ", ".join(found) for name, found in of_all.items()}),
            do="trace them for the same, or name what all are for: platforms=…",
        )
    return tuple(chosen or next(iter(of_all.values())))


def check_meshes(axes: Mapping[str, _meshes.Axes]) -> None:
    """Raise ArtifactError unless all entries run on the same mesh, or none on any."""
    if len({*axes.values()}) > 1:
        texts = {name: f"({_meshes.text(each)})" if each else "none" for name, each in axes.items()}
        raise ArtifactError(
            "the entries are for different meshes",
            where=_each(texts),
            do="trace them under one mesh, or save them in files of their own",
        )


def _each(texts: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


def merged(
    entries: Mapping[str, Sequence[ir.Module]],
) -> tuple[ir.Module, dict[str, list[str]]]:
    """Merge the modules of entries, one for each platform, into the first one.

    Return it, and for each entry its functions by platform. The function for the first platform
    has the name of the entry, and is public; that of the first entry is `@main`.
    """
    modules = list(itertools.chain(*entries.values()))
    if len(entries) > 1:
        _prepare_as_derivatives(modules)
    module, found = platform_variants.merged(modules)
    for other in modules[1:]:
        _mark_as(module, other)
    names = iter(found)
    functions = {name: list(itertools.islice(names, len(x))) for name, x in entries.items()}
    for name in [*entries][1:]:
        _name(module, functions, name)
    return module, functions


def _prepare_as_derivatives(modules: Sequence[ir.Module]) -> None:
    """Inline and merge, as deriving a program does: then its rules equal those it had."""
    for module in modules:
        run_stages(module, PREPARE)


def _mark_as(module: ir.Module, other: ir.Module) -> None:
    """Give the module the marks of another, such as that rules of batching are lost."""
    for name, mark in other.operation.attributes.items():
        if name not in module.operation.attributes:
            module.operation.attributes[name] = mark


def _name(module: ir.Module, functions: Mapping[str, list[str]], entry: str) -> None:
    """Make the function of an entry public under its name: a copy, if it is of others as well."""
    known, own = functions_of(module), functions[entry][0]
    if entry in known:
        raise ArtifactError(
            f"`{entry}` cannot be the name of an entry: a function of the module has it",
            where=f"a function that one of the entries calls, or one of their rules: @{entry}",
            do="give the entry another name",
        )
    make_public(known[own].clone(ir.InsertionPoint(module.body)).operation, entry)
    functions[entry][:] = [entry if each == own else each for each in functions[entry]]
    if own not in itertools.chain(*functions.values()):
        make_private(known[own])
        erase(known[own])
