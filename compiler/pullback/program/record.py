"""Records of programs: modules with rules, and what their arguments and results are.

`Program` and `SymbolicProgram` add what users call. What derives programs works on these, and
gives a program of the class that it is given.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import jax
import numpy as np
from jax.tree_util import PyTreeDef

import pullback_runtime
from pullback import _jax
from pullback._jax import ir, tracing
from pullback._jax.tangent_types import is_inexact
from pullback.errors import PullbackError
from pullback.ir import build, notebook
from pullback.ir.environment import Environment
from pullback.ir.modules import MOST_ELEMENTS, is_elided, result_types, text_of, type_of_entry
from pullback.ir.ops import RULE
from pullback.program.provenance import NO_SOURCE, ModuleSource, PlatformModule, Stage, make
from pullback_runtime._lazy_values import Item, Recent
from pullback_runtime.call._arguments import spell
from pullback_runtime.files._pattern import Pattern
from pullback_runtime.ir._dtypes import element_dtype

ELIDED = f"// Constants of more than {MOST_ELEMENTS} elements are elided"

MOST = 256
"""The number of things made of a program that are memoized with it."""


@dataclass(frozen=True)
class Interface:
    """The structures of a function's arguments and result, and what their leaves are.

    Attributes:
      in_tree: the structure of `(args, kwargs)`, without static arguments.
      out_tree: the structure of the result.
      in_avals: shape and dtype of each leaf of the arguments.
      out_avals: shape and dtype of each leaf of the result.
      arg_paths: the name of each leaf of the arguments, such as `params['w']`.
    """

    in_tree: PyTreeDef
    out_tree: PyTreeDef
    in_avals: tuple[jax.ShapeDtypeStruct, ...]
    out_avals: tuple[jax.ShapeDtypeStruct, ...]
    arg_paths: tuple[str, ...]


def with_result_types(interface: Interface, types: Sequence[Any]) -> Interface:
    """Return the interface of a function whose results have these types in the module.

    Cotangents have the places of their primal values in trees, but may have another dtype.
    """
    outs = tuple(map(_of_type, interface.out_avals, types))
    same = all(map(operator.is_, outs, interface.out_avals))
    return interface if same else dataclasses.replace(interface, out_avals=outs)


def _of_type(aval: jax.ShapeDtypeStruct, type: Any) -> jax.ShapeDtypeStruct:
    if not is_inexact(aval) or aval.dtype == (dtype := _dtype(type)):
        return aval
    return jax.ShapeDtypeStruct(aval.shape, dtype, sharding=tracing.sharding_of(aval))


@_jax.cached
def _dtype(type: Any) -> np.dtype:
    return element_dtype(build.info(type).element, "a result")


def positions_by_argument(in_tree: PyTreeDef, first: int) -> list[range]:
    """Return, for each argument, the positions of its leaves among `@main`'s, from `first`."""
    found = []
    for argument in [each for side in in_tree.children() for each in side.children()]:
        found.append(range(first, first + argument.num_leaves))
        first += argument.num_leaves
    return found


class AnyProgram:
    """A program of a function, with static shapes or symbolic dimensions.

    It says what its arguments and its result are; and it has what derivatives of both kinds are
    made by (`derivation`), the attributes of `pullback.Program`.
    """

    constants: Sequence[jax.Array]
    _shares_values: bool
    entries: Mapping[str, Any]

    def _after(self, stages: Sequence[Stage], interface: Interface) -> Self:
        """Return the program after `stages`; `interface` is of its new arguments and results."""
        raise NotImplementedError

    def asm(self, debug_info: bool = False, most_elements: int | None = None) -> str:
        """Return the module as readable MLIR, with source locations if `debug_info`.

        The text is whole by default, and can be loaded. Constants of more than `most_elements`
        elements are elided.
        """
        raise NotImplementedError

    def __str__(self) -> str:
        """Return the module as MLIR, in which large constants are elided: a comment says so."""
        text = self.asm(most_elements=MOST_ELEMENTS)
        return f"{ELIDED}: `program.asm()` has all\n{text}" if is_elided(text) else text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({spell_types(self)})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the types, and the functions of the module, folded."""
        text = self.asm(most_elements=MOST_ELEMENTS)
        types = f"<code>{html.escape(repr(self))}</code>"
        parts = [notebook.folded_module(text)]
        if f"{RULE} = " in text:
            parts.append("<p>Rules are not in the module yet: <code>stage_rules()</code>.</p>")
        return notebook.page(notebook.fold(types, *parts))

    def __reduce__(self) -> Any:
        raise PullbackError(
            "a program cannot be pickled, nor copied in depth: it holds an MLIR module",
            do="hand on pullback.artifact.serialize(program), which pb.load reads, or a saved file",
        )

    def _once(self, key: Hashable, make: Callable[[], Item]) -> Item:
        """Return what `make` gives, made once for equal keys as long as the program lives.

        All threads get the same, also those that ask at once; a copy of the program starts anew.
        """
        kept: Recent = vars(self).setdefault("_kept", Recent(MOST))
        found = kept.get(key) or kept.keep(key, (make(),))
        return found[0]

    @property
    def _interface(self) -> Interface:
        raise NotImplementedError

    @property
    def in_tree(self) -> PyTreeDef:
        """The structure of `(args, kwargs)`, without static arguments."""
        return self._interface.in_tree

    @property
    def out_tree(self) -> PyTreeDef:
        """The structure of the result."""
        return self._interface.out_tree

    @property
    def in_avals(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shape and dtype of each leaf of the arguments."""
        return self._interface.in_avals

    @property
    def out_avals(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shape and dtype of each leaf of the result."""
        return self._interface.out_avals

    @property
    def arg_paths(self) -> tuple[str, ...]:
        """The name of each leaf of the arguments, such as `params['w']`."""
        return self._interface.arg_paths


def spell_types(program: AnyProgram) -> str:
    """Return the types of a program, as in `(x: float32[3]) -> (float32[])`."""
    named = zip(program.arg_paths, program.in_avals, strict=True)
    arguments = ", ".join(f"{path}: {spell(aval)}" for path, aval in named)
    return f"({arguments}) -> ({', '.join(map(spell, program.out_avals))})"


def result_paths(program: AnyProgram) -> list[str]:
    """Return the paths of the leaves of a result, such as `result` or `result[0]['w']`."""
    result = jax.tree.unflatten(program.out_tree, program.out_avals)
    paths = jax.tree_util.tree_flatten_with_path(result)[0]
    return ["result" + jax.tree_util.keystr(path) for path, _ in paths]


P = TypeVar("P", bound=AnyProgram)
"""A program of either kind; what is derived from it is of the same."""


@dataclass(frozen=True, eq=False, repr=False)
class Record(AnyProgram):
    """Hold a function as a module with rules for each of its platforms, and how it was made.

    Attributes:
      interface: the structures of the arguments and of the result, and what their leaves are; or
        how to find out from the module, which a file can leave for later.
      constants: large arrays that the function closed over: hidden leading arguments of `@main`.
      _lowered: its module, rules and surroundings, for the first platform.
      _further: the same for each further platform that it was traced for.
      _source: what it was made of, and can be made of again for yet another platform.
      _stages: what ran on the module of the source.
      _shares_values: it was traced in a checked `shard_map`, and JAX would count the cotangent of
        an argument or result once for all devices.
      entries: the programs of the file that it was loaded from, by name: itself, and those saved
        with it by `save_all`. It is empty for programs that were traced or derived.
      pattern: where the values of a sparse derivative are in its matrix; None for other programs.
    """

    interface: Interface | Callable[[ir.Module], Interface]
    constants: Sequence[jax.Array]
    _lowered: PlatformModule
    _further: Sequence[PlatformModule] = ()
    _source: ModuleSource = NO_SOURCE
    _stages: tuple[Stage, ...] = ()
    _shares_values: bool = False
    entries: Mapping[str, Any] = field(default_factory=dict)
    pattern: Pattern | None = None

    @property
    def module(self) -> ir.Module:
        """Return the MLIR module; its entry is `@main`."""
        return self._lowered.module

    @property
    def rules(self) -> Any:
        """Return the derivative rules that are not in the module yet."""
        return self._lowered.rules

    @property
    def environment(self) -> Environment:
        """Return what the module needs where it runs, such as devices and callbacks."""
        return self._lowered.environment

    @functools.cached_property
    def _interface(self) -> Interface:
        return self.interface(self.module) if callable(self.interface) else self.interface

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that the program was lowered for, of 'cpu', 'cuda', 'rocm', 'tpu'."""
        return tuple(itertools.chain(*(each.environment.platforms for each in self._each())))

    @property
    def variants(self) -> tuple[Self, ...]:
        """Return the same program for each further platform that it was traced for."""
        return tuple(map(self._alone, self._further))

    def for_platform(self, platform: str) -> Self:
        """Return the program for one of its platforms, which is run wherever it is called.

        Calls of the program itself choose the platform that they run on.

        Raises:
          PullbackError: it was not traced for this platform.
        """
        if platform not in self.platforms:
            raise no_variant(self.platforms, platform)
        found = self._on(platform)
        environment = dataclasses.replace(found.environment, platforms=(platform,))
        lowered = dataclasses.replace(found._lowered, environment=environment)
        source = dataclasses.replace(found._source, lower=None)
        return dataclasses.replace(found, _lowered=lowered, _source=source)

    def _on(self, platform: str) -> Self:
        """Return the program for a platform; for its first one if it cannot be made for that."""
        if not self._further and self._lowered.is_for(platform):
            return self

        return self._once(("on", platform), lambda: self._made_for(platform))

    def _made_for(self, platform: str) -> Any:
        known = next((each for each in self._each() if each.is_for(platform)), None)
        return self._alone(known or make(self._source, self._stages, platform) or self._lowered)

    def _each(self) -> Sequence[PlatformModule]:
        return self._lowered, *self._further

    def _alone(self, lowered: PlatformModule) -> Self:
        """Return the program with this module alone, which was made as its own were."""
        interface = self.interface
        if not callable(interface) and lowered is not self._lowered:
            interface = with_result_types(interface, result_types(lowered.module))
        return dataclasses.replace(self, _lowered=lowered, _further=(), interface=interface)

    def _after(self, stages: Sequence[Stage], interface: Interface) -> Self:
        """Return the program after `stages`; `interface` is of its new arguments and results.

        Raises:
          PullbackError: positions in the stages are others on another platform.
        """
        if self._further and len({type_of_entry(each.module) for each in self._each()}) > 1:
            raise PullbackError(
                "a derivative in two parts has other residuals on another platform, of "
                f"{', '.join(self.platforms)}: what is derived of it is for one",
                do="take the program for one platform: program.for_platform(…)",
            )
        program = self._remade(lambda each: each.after(stages), stages)
        types = result_types(program.module)
        interface = with_result_types(interface, types)
        return dataclasses.replace(program, interface=interface, pattern=None)

    def _remade(
        self, edit: Callable[[PlatformModule], PlatformModule], stages: Sequence[Stage] = ()
    ) -> Self:
        """Return the program of edited modules, which are what `stages` make."""
        made = []
        for each in self._each():
            try:
                made.append(edit(each))
            except PullbackError as error:
                if self._further:
                    names = ", ".join(each.environment.platforms)
                    note = f"so it is for {names}: program.for_platform(…) takes one platform"
                    error.add_note(note)
                raise
        first, *further = made
        stages = (*self._stages, *stages)
        changes: dict[str, Any] = {"_further": tuple(further), "_stages": stages, "entries": {}}
        return dataclasses.replace(self, _lowered=first, **changes)

    def with_module(self, module: ir.Module, **changes: Any) -> Self:
        """Return the program of a module that was made of this one's, by the same rules.

        It cannot be made again, unless `changes` say how.

        Args:
          changes: other attributes, such as the `interface` of a module of other arguments.
        """
        lowered = self._lowered.with_module(module)
        origin = {"_source": NO_SOURCE, "_stages": (), "_further": (), "entries": {}}
        return dataclasses.replace(self, _lowered=lowered, **{**origin, **changes})

    def asm(self, debug_info: bool = False, most_elements: int | None = None) -> str:
        """Return the module as readable MLIR, with source locations if `debug_info`.

        The text is whole by default, and can be loaded. Constants of more than `most_elements`
        elements are elided.
        """
        return text_of(self.module, debug_info, most_elements)


R = TypeVar("R", bound=Record)
"""A record or a program; what is derived from it is of the same class."""


def together(programs: Iterable[R]) -> R:
    """Return one program for the platforms of several, each of a source of its own."""
    first, *others = programs
    if not others:
        return first
    lowered = [form for each in (first, *others) for form in each._each()]
    source = ModuleSource.of(lowered, first._source)
    return dataclasses.replace(first, _further=tuple(lowered[1:]), _source=source)


def here(program: R, backend: str | None = None) -> R:
    """Return the program for a backend, by default JAX's; for its first one if that fails."""
    return program._on(backend or pullback_runtime.default_backend())


def traced_jaxpr(program: Record) -> Any:
    """Return the closed jaxpr that a program was traced to; None if it was loaded or derived."""
    return None if program._stages else program._source.closed


def no_variant(platforms: tuple[str, ...], platform: str) -> PullbackError:
    """Return the error for a platform that a program was not traced for."""
    return PullbackError(
        f"the program was traced for {', '.join(platforms)}, not for {platform}",
        do="trace it again with platforms=…",
    )
