"""A program from a file on an engine that takes the file as it is, without JAX and MLIR."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback_runtime._errors import PullbackRuntimeError, missing_attribute
from pullback_runtime.call import _trees
from pullback_runtime.call._arguments import in_positions, to_arrays
from pullback_runtime.engine._engines import Compiled, Engine, no_engine
from pullback_runtime.files import _entries, _pattern, _signature, _variants
from pullback_runtime.files._bytecode_names import MAIN, with_main
from pullback_runtime.files._call_targets import check_names
from pullback_runtime.files._container import ArtifactError, is_bytecode, is_whole, read_layout
from pullback_runtime.files._executable_file import refuse_executable
from pullback_runtime.files._reading import check_format, naming_file, read_bytes, refusing_damage
from pullback_runtime.files._signature import ArrayType, FileSignature

BY_JAX = 'load it with engine="jax"'


@dataclass(frozen=True, eq=False, repr=False)
class PortableProgram:
    """A program from a file, which an engine other than JAX runs: on and to NumPy arrays.

    It is called as a `LoadedProgram` is. It compiles when it is first called. Where a class of the
    argument trees is not a named tuple, a dictionary by field name stands for it; the words of a
    random key stand for the key.
    """

    metadata: dict[str, Any]
    signature: FileSignature
    start: Callable[[], Compiled]
    entries: Mapping[str, PortableProgram] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tree = self.signature.in_tree
        count = len(tree.children[0].children)
        args, kwargs = in_positions(self.signature.arg_names, count, args, kwargs)
        leaves = _trees.flatten_call(tree, args, kwargs)
        return _trees.unflatten(self.signature.out_tree, iter(self.flat(*leaves)))

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute(self, name)

    def flat(self, *leaves: Any) -> list[np.ndarray]:
        """Call the program with the leaves of its arguments; return the leaves of its result."""
        arrays = to_arrays(self.signature, leaves)
        results = self.compiled(arrays)
        found = [(result.shape, result.dtype) for result in results]
        expected = [(aval.shape, aval.dtype) for aval in self.out_avals]
        if found != expected:
            raise PullbackRuntimeError(
                f"the engine returned arrays of other types than the file names: {found}",
                do="save the program again",
            )
        return results

    @functools.cached_property
    def compiled(self) -> Compiled:
        """The compiled program, which takes and returns lists of arrays."""
        return self.start()

    @property
    def in_avals(self) -> tuple[ArrayType, ...]:
        """Shape and dtype of each leaf of the arguments."""
        return self.signature.in_avals

    @property
    def out_avals(self) -> tuple[ArrayType, ...]:
        """Shape and dtype of each leaf of the result."""
        return self.signature.out_avals

    @functools.cached_property
    def pattern(self) -> _pattern.Pattern | None:
        """Return where the values of a sparse derivative are in its matrix; None for others."""
        return _pattern.of_metadata(self.metadata)

    def describe(self) -> str:
        """Return what the file says of the program: platforms, signature and rules, a line each."""
        return _signature.text_of(self.metadata, [*self.entries])

    def __repr__(self) -> str:
        return f"PortableProgram({', '.join(self.signature.arg_names)})"


@dataclass(frozen=True)
class Whole:
    """The bytes of a file, whose digest has been checked, and one of the programs in it.

    An engine's own parser gets what jaxlib's, where that is installed, has made of them in a helper
    process, unless the file is trusted.
    """

    content: bytes
    of_file: dict[str, Any]
    entry: str
    trusted: bool = False

    def entered(self, name: str) -> Whole:
        """Return the same file for another of its entries."""
        return dataclasses.replace(self, entry=name)

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the entry, as a file of it alone would have."""
        return _entries.metadata_of(self.of_file, self.entry)

    @functools.cached_property
    def signature(self) -> FileSignature:
        """Return the types and trees of the entry."""
        return _signature.of_metadata(self.metadata)

    def program_for(self, platform: str) -> bytes:
        """Return StableHLO whose `@main` is this program.

        Raises: ArtifactError where the program for a platform is another, private function.
        """
        functions = _variants.entries_of(self.metadata)
        home, first = next(iter(functions.items()), (platform, MAIN))
        found = functions.get(platform, first)
        if found == first:
            content = self.content if self.trusted else _parsed_elsewhere(self.content)
            return with_main(content, read_layout(content), first)
        raise ArtifactError(
            f"the file's @{first} is for {home}, and that for {platform} is @{found}",
            do=f'{BY_JAX}, or save it for one platform: save(platforms=["{platform}"])',
        )


@functools.lru_cache(1)
def _parsed_elsewhere(content: bytes) -> bytes:
    """Return what jaxlib's parser makes of a file in a helper process; without jaxlib, the file."""
    if importlib.util.find_spec("jaxlib") is None:
        return content
    safe_parse = importlib.import_module("pullback_runtime.files._safe_parse")
    parsed: bytes = safe_parse.parse_elsewhere(content, safe_parse.worker.PORTABLE)
    return parsed


def read_whole(
    source: str | os.PathLike[str] | bytes, entry: str = _entries.FIRST, trusted: bool = False
) -> Whole:
    """Read a file that pullback saved, without MLIR.

    Raises: ArtifactError for any other file, for what only JAX can run, and without such an entry.
    """
    content = read_bytes(source)
    with naming_file(source), refusing_damage():
        refuse_executable(content)
        if not is_bytecode(content):
            raise _not_ours("it is no MLIR bytecode")
        layout = read_layout(content)
        check_format(layout)
        if not is_whole(content, layout) or layout.metadata is None:
            raise _not_ours("it has no digest")
        check_names(bytes(content[slice(*layout.strings)]))
        _refuse_what_jax_runs(layout.metadata)
        name = _entries.find(entry, _entries.names_of(layout.metadata))
        whole = Whole(bytes(content), layout.metadata, name, trusted)
        whole.signature  # noqa: B018  # raises where it is damaged
        return whole


def _not_ours(why: str) -> ArtifactError:
    return ArtifactError(
        f"this is no program that pullback saved, and only JAX can read others: {why}",
        do=f"{BY_JAX}, or save it: pullback.load(file).save(file)",
    )


def _refuse_what_jax_runs(metadata: dict[str, Any]) -> None:
    if metadata.get("symbolic"):
        raise ArtifactError(
            "only JAX runs a program with symbolic dimensions",
            do=f"{BY_JAX}, or save it with sizes: program.with_sizes(b=4).save(file)",
        )
    if metadata.get("mesh"):
        raise ArtifactError("only JAX runs a program on several devices", do=BY_JAX)


def open_portable(whole: Whole, engine: Engine | None) -> PortableProgram:
    """Return a program that compiles when it is first called; without an engine it raises then."""

    def make(entries: Mapping[str, PortableProgram], name: str) -> PortableProgram:
        return _of_entry(whole.entered(name), engine, entries)

    return _entries.EntriesByName(_entries.names_of(whole.of_file), make)[whole.entry]


def _of_entry(
    whole: Whole, engine: Engine | None, entries: Mapping[str, PortableProgram]
) -> PortableProgram:
    program = None if engine is None else whole.program_for(engine.platform)

    def start() -> Compiled:
        if engine is None or program is None:
            raise no_engine()
        return engine.compile(program)

    return PortableProgram(whole.metadata, whole.signature, start, entries)


def open_compiled(whole: Whole, compiled: Compiled) -> PortableProgram:
    """Return a program that is compiled already."""
    return PortableProgram(whole.metadata, whole.signature, lambda: compiled)
