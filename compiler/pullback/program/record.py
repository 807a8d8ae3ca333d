"""Records of programs: modules with rules, and what their arguments and results are.

`Program` and `SymbolicProgram` add what users call. What derives programs works on these, and
gives a program of the class that it is given.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from pullback import _jax
from pullback._jax import ir, tracing
from pullback._jax.tangent_types import is_inexact
from pullback.errors import PullbackError
from pullback.ir import build, notebook
from pullback.ir.environment import Environment
from pullback.ir.modules import (
    MOST_ELEMENTS,
    clone,
    is_elided,
    result_types,
    text_of,
)
from pullback.ir.ops import RULE
from pullback.passes import manager
from pullback.passes.base import Rules
from pullback.passes.pipelines import Stage
from pullback.program.provenance import Recipe, Retarget
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

    interface: Interface | Callable[[], Interface]
    constants: Sequence[jax.Array]
    recipe: Recipe | None
    variants: Sequence[Any]
    retarget: Retarget | None
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
        return f"{type(self).__name__}({self._spelt()})"

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

    @functools.cached_property
    def _interface(self) -> Interface:
        return self.interface() if callable(self.interface) else self.interface

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

    def _spelt(self) -> str:
        """Return the types, as in `(x: float32[3]) -> (float32[])`."""
        named = zip(self.arg_paths, self.in_avals, strict=True)
        arguments = ", ".join(f"{path}: {spell(aval)}" for path, aval in named)
        return f"({arguments}) -> ({', '.join(map(spell, self.out_avals))})"


P = TypeVar("P", bound=AnyProgram)
"""A program of either kind; what is derived from it is of the same."""


@dataclass(frozen=True, eq=False, repr=False)
class Record(AnyProgram):
    """A module with its rules and surroundings, and how it was made.

    Attributes:
      module: the MLIR module; its entry is `@main`.
      interface: the structures of the arguments and of the result, and what their leaves are; or
        how to find out, which a file can leave for later.
      constants: large arrays that the function closed over: hidden leading arguments of `@main`.
      rules: the derivative rules that are not in the module yet.
      _environment: what it needs around it, such as devices and callbacks.
      recipe: how the module was made, where it can be made again for a batch of arguments.
      variants: the same program for each further platform it was traced for.
      retarget: how it is made for other platforms, where it can be.
      _shares_values: it was traced in a checked `shard_map`, and JAX would count the cotangent of
        an argument or result once for all devices.
      entries: the programs of the file that it was loaded from, by name: itself, and those saved
        with it by `save_all`. It is empty for programs that were traced or derived.
      pattern: where the values of a sparse derivative are in its matrix; None for other programs.
    """

    module: ir.Module
    interface: Interface | Callable[[], Interface]
    constants: Sequence[jax.Array]
    rules: Rules
    _environment: Environment
    recipe: Recipe | None = None
    variants: Sequence[Any] = ()
    retarget: Retarget | None = None
    _shares_values: bool = False
    entries: Mapping[str, Any] = field(default_factory=dict)
    pattern: Pattern | None = None

    def _after(self, stages: Sequence[Stage], interface: Interface) -> Self:
        """Return the program after `stages`; `interface` is of its new arguments and results."""
        module = clone(self.module)
        manager.run_stages(module, stages, self.rules)
        interface = with_result_types(interface, result_types(module))
        recipe = self.recipe and self.recipe.then(stages)
        return self._derivative(module, interface=interface, recipe=recipe)

    def _derivative(self, module: ir.Module, **changes: Any) -> Self:
        """Return the derivative whose module was made of this one's."""
        rules, environment = self.rules.of_derivative(), self._environment.of_derivative()
        derivative = dataclasses.replace(self, rules=rules, _environment=environment)
        return derivative._with_module(module, retarget=None, pattern=None, **changes)

    def _with_module(self, module: ir.Module, **changes: Any) -> Self:
        """Return the program of a module that was made of this one's, by the same rules."""
        environment = self.rules.around(self._environment)
        changes = {"entries": {}, **changes}
        return dataclasses.replace(self, module=module, _environment=environment, **changes)

    def asm(self, debug_info: bool = False, most_elements: int | None = None) -> str:
        """Return the module as readable MLIR, with source locations if `debug_info`.

        The text is whole by default, and can be loaded. Constants of more than `most_elements`
        elements are elided.
        """
        return text_of(self.module, debug_info, most_elements)


R = TypeVar("R", bound=Record)
"""A record or a program; what is derived from it is of the same class."""
