"""Read a saved program, or any StableHLO module, from bytes that may be damaged, or hostile.

A file with pullback's digest is checked against it before MLIR sees a byte. Unless the caller
trusts it, each file is parsed in a helper process first; large constants are read without MLIR.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from pullback_runtime import _jax
from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir
from pullback_runtime.call import _avals, _jax_trees
from pullback_runtime.files import _constants, _custom_calls, _entries, _safe_parse, _variants
from pullback_runtime.files._container import (
    DIGEST_ATTRIBUTE,
    METADATA_ATTRIBUTE,
    SAVE_AGAIN,
    ArtifactError,
    Layout,
    is_bytecode,
    is_whole,
    parse_metadata,
    read_layout,
)
from pullback_runtime.files._executable_file import refuse_executable
from pullback_runtime.files._reading import (
    check_format,
    naming_file as naming_file,
    read_bytes as read_bytes,
    refusing_damage as refusing_damage,
)
from pullback_runtime.files._safe_parse_worker import EXPORTED
from pullback_runtime.ir import _module

PARSED_APART = 64 << 20
EMBEDDED_BELOW = 3 << 20
MANY_EMBEDDED_BELOW = 8 << 20
SMALL = 1 << 19
"""Limits below which constants stay in the module, because MLIR copies them faster than we can take
them out of the file: their total size in bytes (`EMBEDDED_BELOW`; `MANY_EMBEDDED_BELOW` if each has
at most `SMALL` bytes on average)."""
COMPOSITE = b"composite"
VERSION_INSIDE = re.compile(rb"StableHLO_v(\d+\.\d+\.\d+)\0")


@dataclass(frozen=True)
class Opened:
    """A module read from a file, and what the file says about it.

    `metadata` is None for a module that pullback did not write; `exported` is set for what
    `jax.export` serialised. `hoisted` has, by function, the large arrays of the module that have
    become its hidden leading arguments. `is_whole` is True if the digest fits and the caller trusts
    it: what `save` verified is not verified again. `has_composites` is False if certainly no op is
    a composite; `may_call_out` is False if certainly no op is a custom call or a transfer to the
    host.
    """

    module: ir.Module
    metadata: dict[str, Any] | None = None
    exported: Any = None
    hoisted: Mapping[str, tuple[np.ndarray, ...]] = field(default_factory=dict)
    is_whole: bool = False
    has_composites: bool = True
    may_call_out: bool = True

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the entries of a saved file; none for any other module."""
        return _entries.names_of(self.metadata) if self.metadata else ()

    def entered(self, name: str) -> Opened:
        """Return what a file with only this entry would say of the same module."""
        return replace(self, metadata=_entries.metadata_of(self.metadata or {}, name))

    @property
    def functions(self) -> set[str]:
        """The functions of the module that are the entries, of all names and platforms."""
        return _functions_of(self.metadata)

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """The hidden leading arguments of the entry, the same on each platform."""
        functions = set(_variants.entries_of(self.metadata).values()) or {_entries.FIRST}
        first, *others = (self.hoisted.get(function, ()) for function in sorted(functions))
        if any([*map(id, each)] != [*map(id, first)] for each in others):
            raise ArtifactError("the file's metadata name other constants", do=SAVE_AGAIN)
        return first

    def trees(self) -> tuple[PyTreeDef, PyTreeDef] | None:
        """Return the trees of `(args, kwargs)` and of the result; None if the file has none."""
        if self.exported is not None:
            return self.exported.in_tree, self.exported.out_tree
        if self.metadata is None or "in_tree" not in self.metadata:
            return None
        in_tree = _jax_trees.restore_arguments(self.metadata["in_tree"])
        return in_tree, _jax_trees.restore(self.metadata["out_tree"])

    def check_custom_calls(self, allowed: Collection[str]) -> None:
        """Raise ArtifactError for a custom call that no file may make, or that is not in `allowed`.

        Args:
          allowed: targets that the caller vouches for.
        """
        if self.may_call_out:
            _custom_calls.check_origin(self.module, allowed)
        exported = self.exported
        while exported is not None and exported.has_vjp():
            exported = exported.vjp()
            content = bytes(exported.mlir_module_serialized)
            if _custom_calls.may_be_in(content):
                derivative = _module.parse(_safe_parse.parse_elsewhere(content))
                _custom_calls.check_origin(derivative, allowed)

    def types(self) -> tuple[Any, Any]:
        """Return the file's descriptions of argument and result types, which may be PRNG keys.

        Where a description, or the list of them, is None, the module's own types hold.
        """
        if self.exported is None:
            metadata = self.metadata or {}
            return metadata.get("in_avals"), metadata.get("out_avals")
        ins, outs = (
            [_avals.describe(aval) if _avals.is_key(aval) else None for aval in avals]
            for avals in (self.exported.in_avals, self.exported.out_avals)
        )
        return ins, outs


def open_module(
    source: str | os.PathLike[str] | bytes,
    context: ir.Context | None = None,
    trusted: bool = False,
) -> Opened:
    """Read the module in a file or in bytes; raise ArtifactError for anything that is not one.

    Args:
      trusted: parse it in this process, which a hostile or damaged file can end.
    """
    if not trusted:
        _safe_parse.start()  # while the file is read
    content = read_bytes(source)
    with naming_file(source), refusing_damage():
        name = os.fspath(source) if isinstance(source, str | os.PathLike) else None
        return _open(content, context or _jax.context(), name, trusted)


def _open(content: Any, context: ir.Context, name: str | None, trusted: bool) -> Opened:
    refuse_executable(content)
    if is_bytecode(content):
        return _open_bytecode(content, context, trusted)
    content = bytes(content)
    if _is_text(content):
        found = _open_foreign(content, context, trusted)
        if name is not None:
            _module.name_locations(found.module, name)
        return found
    return _open_exported(content, context)


def _is_text(content: bytes) -> bool:
    """Return True if the bytes are UTF-8 text; a NUL never occurs in the text of a module."""
    if b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _open_bytecode(content: Any, context: ir.Context, trusted: bool) -> Opened:
    layout = read_layout(content)
    check_versions(layout)
    if not is_whole(content, layout):
        return _open_foreign(bytes(content), context, trusted)
    metadata, names = layout.metadata or {}, content[slice(*layout.strings)]
    stays = _stay_inside(layout)
    described = () if stays else metadata.get(_constants.METADATA)
    content, stored = _constants.take_out(content, described) if described else (content, [])
    content, strings = bytes(content), names
    if not trusted:
        content = names = _safe_parse.parse_elsewhere(content)
        strings = None
    parse = functools.partial(_module.parse, strings=strings)
    hoisted: dict[str, tuple[np.ndarray, ...]] = {}
    entries = _functions_of(metadata)
    if stored:
        module = parse(content, context)
        hoisted = _constants.hoist_stored(module, stored, entries)
    elif stays or len(entries) > 1:
        module = parse(content, context)
    else:
        module, hoisted = _parse_hoisting(content, parse, context)
    forget_file(module)
    return Opened(
        module,
        layout.metadata,
        None,
        hoisted,
        is_whole=trusted,
        has_composites=COMPOSITE in names,
        may_call_out=_custom_calls.may_be_in(names),
    )


def _stay_inside(layout: Layout) -> bool:
    """Return True if the constants are so small that they stay in the module."""
    if layout.attributes < EMBEDDED_BELOW:
        return True
    described = (layout.metadata or {}).get(_constants.METADATA) or ()
    return layout.attributes < min(MANY_EMBEDDED_BELOW, len(described) * SMALL)


def _parse_hoisting(
    content: bytes, parse: Callable[..., ir.Module], context: ir.Context
) -> tuple[ir.Module, dict[str, tuple[np.ndarray, ...]]]:
    """Parse a module whose file does not list its large constants, and hoist them; return both.

    A context keeps the data of every constant it has seen, so a large file is parsed in a temporary
    one. Creating it takes 15 ms, which a smaller file need not wait for.
    """
    if len(content) < PARSED_APART:
        module = parse(content, context)
        return module, {_entries.FIRST: _constants.hoist(module)}
    module = _module.parse(content, _jax.fresh_context())
    hoisted = {_entries.FIRST: _constants.hoist(module)}
    return _module.parse(_module.to_bytecode(module), context), hoisted


def _functions_of(metadata: dict[str, Any] | None) -> set[str]:
    each = (_entries.metadata_of(metadata or {}, name) for name in _entries.names_of(metadata))
    return {f for own in each for f in _variants.entries_of(own).values()} or {_entries.FIRST}


def checked(content: bytes) -> bytes:
    """Return bytecode that MLIR may parse in this process: what the helper process made of it.

    Raises: ArtifactError for damaged bytecode.
    """
    with refusing_damage():
        layout = read_layout(content)
        check_versions(layout)
        is_whole(content, layout)
        return _safe_parse.parse_elsewhere(content)


def _open_foreign(content: bytes, context: ir.Context, trusted: bool) -> Opened:
    content = content if trusted else _safe_parse.parse_elsewhere(content)
    module = _module.parse(content, context)
    if not len(module.body.operations):
        raise ArtifactError(
            "the file holds an empty module", do="it must be StableHLO text or bytecode"
        )
    _module.end_in_func_return(module)
    return opened(module)


def opened(module: ir.Module) -> Opened:
    """Wrap a parsed module together with the metadata that it carries, if any.

    The text that `pullback dump` prints has metadata and no digest.
    """
    text = module.operation.attributes.get(METADATA_ATTRIBUTE, None)
    forget_file(module)
    return Opened(module, parse_metadata(text.value) if isinstance(text, ir.StringAttr) else None)


def forget_file(module: ir.Module) -> None:
    """Remove metadata and digest from the module: they would be stale once it changes."""
    attributes = module.operation.attributes
    for name in (METADATA_ATTRIBUTE, DIGEST_ATTRIBUTE):
        if name in attributes:
            del attributes[name]


def _open_exported(content: bytes, context: ir.Context) -> Opened:
    if importlib.util.find_spec("flatbuffers") is None:
        raise ArtifactError(
            "this is no StableHLO text or bytecode; jax.export's form needs flatbuffers to read",
            do="pip install flatbuffers",
        )
    try:
        module = _safe_parse.parse_elsewhere(content, EXPORTED)
    except ArtifactError as error:
        _check_version_inside(content)
        raise ArtifactError(
            "this is neither StableHLO text or bytecode, nor what jax.export serialised",
            do=error.do,
        ) from error
    # The helper process has read all of this, within its limits: the same bytes are safe here.
    return Opened(
        _module.parse(module, context), exported=jax.export.deserialize(bytearray(content))
    )


def open_exported(exported: Any, context: ir.Context) -> Opened:
    """Parse the module inside a `jax.export.Exported`."""
    content = bytes(exported.mlir_module_serialized)
    try:
        return Opened(_module.parse(content, context), exported=exported)
    except ModuleError:
        _check_version_inside(content)
        raise


def _check_version_inside(content: bytes) -> None:
    """Raise ArtifactError if a `jax.export` file has a StableHLO version not readable here."""
    for version in VERSION_INSIDE.findall(content):
        _check_stablehlo(version.decode())


def check_versions(layout: Layout) -> None:
    """Raise ArtifactError, naming both versions, for a file that is too new or too old."""
    check_format(layout)
    version = layout.stablehlo_version
    if version is not None:
        _check_stablehlo(version)


@functools.cache
def _check_stablehlo(version: str) -> None:
    current = _jax.stablehlo.get_current_version()
    oldest = _jax.stablehlo.get_minimum_version()
    try:
        numbers = version_numbers(version)
    except ValueError as error:
        raise ArtifactError(
            f"the file names no StableHLO version that can be read: {version!r}",
            where=f"this jaxlib reads {oldest} to {current}",
            do="it is damaged, or of another program: save it again",
        ) from error
    if numbers > version_numbers(current):
        raise ArtifactError(
            f"the file needs StableHLO {version}, and this jaxlib reads up to {current}",
            do=f"pip install --upgrade jax, or save it with target={current!r}",
        )
    if numbers < version_numbers(oldest):
        raise ArtifactError(
            f"the file has StableHLO {version}, and this jaxlib reads from {oldest}",
            do=f"save it again with target={oldest!r} or newer, using the jax that wrote it",
        )


def version_numbers(version: str) -> tuple[int, ...]:
    """Parse a version such as `1.9.3` to integers; raise ValueError for anything else."""
    return tuple(int(part) for part in version.split("."))
