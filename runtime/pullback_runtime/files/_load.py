"""Load a saved program and run it, without the compiler."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.tree_util import PyTreeDef

from pullback_runtime._errors import ArgumentError, MissingTransformError, missing_attribute
from pullback_runtime.call import _avals, _backend, _compile, _meshes
from pullback_runtime.call._arguments import CallSignature, in_positions, spell
from pullback_runtime.call._convention import Callee, Convention, placing
from pullback_runtime.call._executable import Executable
from pullback_runtime.call._handle import ModuleHandle, make_handle
from pullback_runtime.call._jax_arguments import refit
from pullback_runtime.call._jax_trees import LEAF, flatten_call
from pullback_runtime.files import (
    _custom_calls,
    _entries,
    _pattern,
    _signature,
    _symbolic,
    _variants,
)
from pullback_runtime.files._artifact import Opened, naming_file, open_module, refusing_damage
from pullback_runtime.files._container import ArtifactError
from pullback_runtime.ir import _module

_SHOWN = 8


@dataclass(frozen=True, eq=False, repr=False)
class LoadedProgram:
    """A program from a file: call it with the arguments of the function it was saved from.

    Where a class of the argument trees is not here, a dictionary by field name stands for it.

    Attributes:
      opened: the module, and what the file says of this entry.
      backend: where it runs; by default, where the arguments are.
      function: the function that it is, of a module that `pullback` did not save.
      entries: all programs of the file by name, which share its constants.
      placed: the constants of the file that are on the backend.
    """

    opened: Opened
    backend: str | None = None
    function: str = _entries.FIRST
    entries: Mapping[str, LoadedProgram] = field(default_factory=dict)
    placed: _entries.Placed = field(default_factory=_entries.Placed)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._function(*args, **kwargs)
        except ArgumentError as error:
            args, kwargs = refit(error, self._signature, self.trees[0], args, kwargs)
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        names = self.metadata.get("arguments")
        if not isinstance(names, list):  # no file of ours, or a damaged one
            return "LoadedProgram()"
        more = [f"… {len(names)} arguments"] if len(names) > _SHOWN else []
        return f"LoadedProgram({', '.join([*map(str, names[:_SHOWN]), *more])})"

    @functools.cached_property
    def _function(self) -> Callable[..., Any]:
        """The program as a jitted function of pytrees, flattened only while JAX traces."""
        device = _backend.pick_device(self.backend, None)
        if self.opened.exported is not None:  # JAX runs what it has exported itself
            self._check_registered(self.opened.exported)
            return placing(jax.jit(self.opened.exported.call), device)
        if _symbolic.METADATA in self.metadata:
            return placing(jax.jit(self._on_trees(self.symbolic)), device)
        in_tree, out_tree = self.trees
        convention = Convention(
            example=((), {}),
            flatten=lambda args, kwargs: [
                _avals.physical(leaf) for leaf in self._flattened(in_tree, args, kwargs)
            ],
            unflatten=lambda results: jax.tree.unflatten(out_tree, self._logical(results)),
            constants=self.constants,
        )
        return Callee(self.handle, (), convention, self._mesh).callable(device)

    @functools.cached_property
    def _mesh(self) -> jax.sharding.Mesh | None:
        axes = _meshes.axes_of(self.metadata, self.opened.module)
        return _meshes.here(axes, self.backend)

    @property
    def _signature(self) -> CallSignature:
        if _symbolic.METADATA in self.metadata:
            avals = _symbolic.signature(self.metadata[_symbolic.METADATA]["main"])[0]
            return CallSignature(avals, self._names or ())
        hidden = len(self.opened.constants)
        names = (self._names or ())[hidden:]
        return CallSignature(self.handle.in_avals[hidden:], names, self.handle.entry)

    def _check_registered(self, exported: Any) -> None:
        """Raise CompileError if an exported function calls a target not registered here."""
        platform = self.backend or _backend.default_backend()
        content = bytes(exported.mlir_module_serialized)
        if exported.platforms == (platform,) and _custom_calls.may_be_in(content):
            module = _module.parse(content)
            _module.make_private(module, keep="main")
            _module.drop_unreached(module)
            _custom_calls.check_registered(module, platform)

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute(self, name)

    def _flattened(self, in_tree: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = self.metadata.get("arguments")
        if isinstance(names, list) and kwargs:
            count = len(in_tree.children()[0].children())
            args, kwargs = in_positions(list(map(str, names)), count, args, kwargs)
        return flatten_call(in_tree, args, kwargs)

    def _on_trees(self, flat: Callable[..., Any]) -> Callable[..., Any]:
        in_tree, out_tree = self.trees

        def program(*args: Any, **kwargs: Any) -> Any:
            return jax.tree.unflatten(out_tree, flat(*self._flattened(in_tree, args, kwargs)))

        return program

    def flat(self, *leaves: Any) -> list[Any]:
        """Call the program with the leaves of its arguments; return the leaves of its result."""
        if _symbolic.METADATA in self.metadata:
            return list(self.symbolic(*leaves))
        if self.opened.exported is not None:
            args, kwargs = jax.tree.unflatten(self.opened.exported.in_tree, leaves)
            return jax.tree.leaves(self(*args, **kwargs))
        return self._logical(self.executable(*self.constants, *map(_avals.physical, leaves)))

    def _logical(self, results: Sequence[Any]) -> list[Any]:
        return [_avals.logical(*pair) for pair in zip(results, self.out_avals, strict=True)]

    def describe(self) -> str:
        """Return what the file says of the program: platforms, signature and rules, a line each."""
        known = self.metadata
        if not {_signature.METADATA, _symbolic.METADATA} & {*known}:
            sides = self.handle.in_avals[len(self.opened.constants) :], self.handle.out_avals
            known = known | {_signature.METADATA: [list(map(spell, side)) for side in sides]}
        return _signature.text_of(known, [*self.entries])

    @property
    def metadata(self) -> dict[str, Any]:
        """The file's metadata; empty for a module that pullback did not write."""
        return self.opened.metadata or {}

    @functools.cached_property
    def pattern(self) -> _pattern.Pattern | None:
        """Return where the values of a sparse derivative are in its matrix; None for others."""
        return _pattern.of_metadata(self.metadata)

    @functools.cached_property
    def trees(self) -> tuple[PyTreeDef, PyTreeDef]:
        """The trees of `(args, kwargs)` and of the result; flat where the file has none."""
        with refusing_damage():
            found = self.opened.trees()
        if found is not None and _symbolic.METADATA in self.metadata:
            return found
        hidden = len(self.opened.constants)
        leaves = len(self.handle.in_avals) - hidden, len(self.handle.out_avals)
        if found is None:
            return flat_trees(*leaves)
        if tuple(tree.num_leaves for tree in found) != leaves:
            raise ArtifactError(
                f"the file's argument trees have other numbers of leaves than @main: {leaves}",
                do="save the program again",
            )
        return found

    @functools.cached_property
    def out_avals(self) -> tuple[Any, ...]:
        """Shape and dtype of each leaf of the result."""
        described = self.metadata.get("out_avals")
        if described is None:
            return self.handle.out_avals
        with refusing_damage():
            return tuple(map(_avals.restore, described))

    @functools.cached_property
    def handle(self) -> ModuleHandle:
        """The module as a value that `call_module` calls, with flat arrays, constants first."""
        entries = _variants.entries_of(self.metadata)
        return _handle(self.opened.module, entries, self._names, self._entry)

    @functools.cached_property
    def executable(self) -> Executable:
        """The compiled module, which takes and returns flat arrays, constants first."""
        return _compile.compile(
            self.opened.module,
            backend=self.backend,
            entry=self._entry,
            arg_names=self._names,
            mesh=self._mesh,
        )

    @property
    def _names(self) -> list[str] | None:
        hidden = [f"constant {number}" for number in range(len(self.opened.constants))]
        names = self.metadata.get("arguments")
        return [*hidden, *names] if _variants.are_names(names) else None

    @functools.cached_property
    def symbolic(self) -> Callable[..., Any]:
        """The flat function of a file with symbolic dimensions, for arguments of any shape."""
        described, platforms = self.metadata[_symbolic.METADATA], self.metadata["platforms"]
        exported = _symbolic.restore(self.opened.module, described["main"], platforms, "main")
        self._check_registered(exported)
        in_tree, avals = self.trees[0], exported.in_avals
        names = self._names or [f"argument {number}" for number in range(len(avals))]

        def pull(residuals: None, cotangents: Any) -> Any:
            raise MissingTransformError(
                "the runtime does not differentiate a program with symbolic dimensions",
                do="load it by pullback.load; without the compiler, call the file of a derivative",
            )

        # With a jvp rule, it would be rejected where no derivative is taken, too.
        call = jax.custom_vjp(exported.call)
        call.defvjp(lambda *leaves: (exported.call(*leaves), None), pull)

        def main(*leaves: Any) -> Any:
            if len(leaves) != len(avals):
                raise ArgumentError(
                    f"{len(avals)} arrays are expected, and {len(leaves)} were given",
                    where=f"parameters: {', '.join(names)}",
                    do="pass one array per parameter, in this order",
                )
            if not any(_symbolic.is_symbolic(jax.typeof(leaf)) for leaf in leaves):
                _symbolic.sizes(leaves, avals, in_tree, names)
            return call(*leaves)

        return jax.jit(main)

    @property
    def _entry(self) -> str:
        """The function for the platform where the program runs, the first if there is none."""
        entries = _variants.entries_of(self.metadata)
        first = next(iter(entries.values()), self.function)
        return entries.get(self.backend or _backend.default_backend(), first)

    @functools.cached_property
    def constants(self) -> tuple[jax.Array, ...]:
        """The large constants of the program, on the backend if one was named, else uncommitted."""
        device = None if self._mesh else _backend.pick_device(self.backend, None)
        place = functools.partial(_backend.put_to_keep, device=device, may_alias=True)
        return self.placed(self.opened.constants, place)


def _handle(
    module: Any, entries: dict[str, str], names: list[str] | None, entry: str
) -> ModuleHandle:
    """Return the handle of an entry, which leads to the entries for other platforms."""

    def elsewhere(platform: str) -> ModuleHandle | None:
        other = entries.get(platform)
        return None if other is None else _handle(module, entries, names, other)

    platforms = tuple(name for name, each in entries.items() if each == entry)
    handle = make_handle(module, entry=entry, arg_names=names)
    return dataclasses.replace(handle, platforms=platforms, elsewhere=elsewhere)


def flat_trees(arguments: int, results: int) -> tuple[PyTreeDef, PyTreeDef]:
    """Return trees of positional arguments, and of results: a leaf if it is one, else a tuple."""
    in_tree = jax.tree.structure(((0,) * arguments, {}))
    return in_tree, LEAF if results == 1 else jax.tree.structure((0,) * results)


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    entry: str = _entries.FIRST,
    backend: str | None = None,
    allow_custom_calls: Collection[str] = (),
    trusted: bool = False,
) -> LoadedProgram:
    """Load a saved program, or any StableHLO module, as `pullback_runtime.load` says."""
    opened = open_module(source, trusted=trusted)
    with naming_file(source), refusing_damage():
        if not opened.is_whole:
            _module.refuse_fatal(opened.module)
        opened.check_custom_calls(allow_custom_calls)
        if not opened.entries:
            return _of_function(opened, entry, backend)
        make = functools.partial(_of_entry, opened, backend, _entries.Placed())
        entries = _entries.EntriesByName(opened.entries, make)
        return entries[_entries.find(entry, opened.entries)]


def _of_entry(
    opened: Opened,
    backend: str | None,
    placed: _entries.Placed,
    entries: Mapping[str, LoadedProgram],
    name: str,
) -> LoadedProgram:
    return LoadedProgram(opened.entered(name), backend, entries=entries, placed=placed)


def _of_function(opened: Opened, entry: str, backend: str | None) -> LoadedProgram:
    """Return the program of a module that `pullback` did not save."""
    if entry != _entries.FIRST and opened.exported is not None:
        raise _entries.only_main(entry)
    if entry != _entries.FIRST:
        _module.find_entry(opened.module, entry)
    return LoadedProgram(opened, backend, entry)
