"""What stands between the arguments of a function and those of a module's entry."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jax.tree_util import PyTreeDef


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
