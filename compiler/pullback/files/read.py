"""Load a program from a file: its rules are functions of the module, so no Python is needed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.errors import VerificationError
from pullback.files import give_rules, loaded_program, vhlo_gaps
from pullback.files.errors import ArtifactError, as_ours
from pullback.files.jax_export import exchange, match_expansions, match_library_calls
from pullback.files.symbolic import save_load
from pullback.ir import lost_rules
from pullback.ir.modules import exchange_entry
from pullback.ir.verify import verify
from pullback.program.program import Program
from pullback_runtime.files import _artifact, _entries, _symbolic
from pullback_runtime.ir import _module


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    entry: str = "main",
    allow_custom_calls: Collection[str] = (),
    trusted: bool = False,
    rules: Mapping[str, Callable[..., Any]] | None = None,
) -> Program | Any:
    """Load a program from a file, or from its bytes.

    Reads what `save` wrote, any StableHLO module (text, bytecode or portable artifact), and what
    `jax.export` serialised. Loading runs no code that the file names.

    Args:
      source: a path, or the content of a file as bytes.
      entry: which of the programs of a file, by default the first; `program.entries` has all.
        Of a StableHLO module, the function that the program is; it is called @main then.
      allow_custom_calls: targets of custom calls that you vouch for, such as one that you have
        registered by `jax.ffi`; those of libraries that come with JAX need no word.
      trusted: parse the file in this process, which is faster; a hostile one can end it. By default
        a helper process parses it first, with limits on time and memory, and this process reads
        what that has written.
      rules: functions of JAX with derivative rules (`jax.custom_jvp`, `jax.custom_vjp`), by the
        name of a function that a module of others calls, or of a composite. Each is called in its
        place, with its operands, values and derivatives both. `pullback info` lists the names.

    Returns: a Program; a SymbolicProgram where dimensions are symbols.

    Raises:
      ArtifactError: the file is damaged, too new, holds no module, or one whose derivative ops
        break a constraint of the dialect; it makes another custom call, or one that has a meaning
        only in the process that wrote it; or it has no such entry.
      ModuleError: the module has no such function.
    """
    rules = rules or {}
    with as_ours():
        opened = _artifact.open_module(source, _jax.context(), trusted)
        with _artifact.naming_file(source), _artifact.refusing_damage():
            if opened.exported is not None:
                if entry != "main":
                    raise _entries.only_main(entry)
                opened.check_custom_calls(allow_custom_calls)
                return exchange.from_opened(opened, rules)
            return _program_of(opened, entry, allow_custom_calls, rules)


def of_module(module: ir.Module, entry: str) -> Program:
    """Make a program of a module in our context; the program owns the module from then on."""
    with as_ours(), _artifact.refusing_damage():
        opened = _artifact.opened(module)
        if entry != "main":
            opened = dataclasses.replace(opened, metadata=None)
        program: Program = _program_of(opened, entry, None, {})
        return program


def _take_function(module: ir.Module, entry: str) -> None:
    """Make `entry` the `@main` of a foreign module.

    What else calls `@main` would not fit derivatives; so all other functions become private.
    """
    if entry != "main":
        _module.signature(_module.find_entry(module, entry), entry)  # errors have this name
        exchange_entry(module, entry)
    _module.find_entry(module, "main")
    _module.make_private(module, keep="main")


def _program_of(
    opened: _artifact.Opened,
    entry: str,
    allowed: Collection[str] | None,
    rules: Mapping[str, Callable[..., Any]],
) -> Any:
    """Make a program of an opened file's module.

    Args:
      entry: the name of a program of the file; of a foreign module, the function.
      allowed: custom calls that the caller vouches for; None if the module is of this process.
      rules: of functions and composites of a foreign module, by name.
    """
    metadata = opened.metadata or {}
    if metadata and rules:
        raise ArtifactError(
            "rules= is for modules of others, and pullback has saved this file, with its rules",
            do="leave out rules=",
        )
    if metadata:
        entry = _entries.find(entry, opened.entries)
    else:
        _take_function(opened.module, entry)
    if _symbolic.METADATA in metadata:
        opened.check_custom_calls(allowed or ())
        return save_load.load(opened.module, opened.trees(), metadata)
    if opened.has_composites:
        vhlo_gaps.restore(opened.module, erase=len(opened.functions) < 2)
        if not opened.is_whole:  # what save wrote, it has verified
            _verify(opened.module)
    of_others = frozenset() if metadata else lost_rules.functions_of_others(opened.module)
    if rules:
        opened = give_rules.give(opened, opened.module, rules)
    if not metadata:  # where names of rules are references, it does not take them for dead
        match_expansions.put_back(opened.module)
        match_library_calls.put_back(opened.module)
        _module.drop_unreached(opened.module)
    else:
        match_expansions.put_back_lgamma(opened.module)
    if not opened.is_whole:
        _module.refuse_fatal(opened.module)
    if allowed is not None:
        opened.check_custom_calls(allowed)
    if marked := metadata.get(vhlo_gaps.CHECKPOINTS):
        vhlo_gaps.put_checkpoints(opened.module, marked)
    if metadata:
        return loaded_program.of_file(opened, entry)
    lost_at = lost_rules.found_in(opened.module, of_others)
    return loaded_program.of_platforms(opened, lost_at=lost_at)


def _verify(module: ir.Module) -> None:
    try:
        verify(module)
    except VerificationError as error:
        raise ArtifactError(
            error.message,
            where=error.where,
            do="correct the module; docs/dialect.md lists the constraints by their labels",
        ) from error
