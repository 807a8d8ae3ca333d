"""What stands between the arguments of a function and those of a module's entry."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
from jax.tree_util import PyTreeDef

from pullback_runtime._arguments import spell


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


class HasInterface:
    """A program of a function, which says what its arguments and its result are."""

    interface: Interface | Callable[[], Interface]

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

    def spelt(self) -> str:
        """The types, as in `(x: float32[3]) -> (float32[])`."""
        named = zip(self.arg_paths, self.in_avals, strict=True)
        arguments = ", ".join(f"{path}: {spell(aval)}" for path, aval in named)
        return f"({arguments}) -> ({', '.join(map(spell, self.out_avals))})"
