"""A module as a Python function of pytrees, jitted: a call costs what `jax.jit`'s costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from jax.tree_util import PyTreeDef, keystr, tree_flatten_with_path

from pullback_runtime._errors import ArgumentError
from pullback_runtime.call._handle import ModuleHandle
from pullback_runtime.call._primitive import call_module


def make_callable(
    handle: ModuleHandle,
    in_tree: PyTreeDef,
    out_tree: PyTreeDef,
    *,
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    inline: bool = False,
) -> Any:
    """Return a jitted callable that takes and returns pytrees.

    `in_tree` is the structure of `(args, kwargs)`: `jax.tree.structure(((x, y), {"scale": s}))`;
    its leaves are the module's arguments in order, and those of `out_tree` its results.

    Raises: ArgumentError when a call's tree, shapes or dtypes differ; it names the argument by
    its path, such as `args[0]['w']`.
    """
    _check_leaves(handle, in_tree, out_tree)
    if handle.arg_names is None:
        leaves = jax.tree.unflatten(in_tree, range(in_tree.num_leaves))
        handle = dataclasses.replace(handle, arg_names=argument_paths(leaves))

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != in_tree:
            raise _tree_mismatch(handle, in_tree, tree)
        return jax.tree.unflatten(out_tree, call_module(handle, *leaves))

    function.__name__ = function.__qualname__ = handle.entry
    return jax.jit(
        function, donate_argnums=donate_argnums, donate_argnames=donate_argnames, inline=inline
    )


def argument_paths(arguments: Any) -> tuple[str, ...]:
    """Return the paths of the leaves of `(args, kwargs)`, such as `args[0]['w']`."""
    paths = [path for path, _ in tree_flatten_with_path(arguments)[0]]
    return tuple(("args" if path[0].idx == 0 else "kwargs") + keystr(path[1:]) for path in paths)


def _check_leaves(handle: ModuleHandle, in_tree: PyTreeDef, out_tree: PyTreeDef) -> None:
    counts = (
        ("in_tree", in_tree.num_leaves, len(handle.in_avals), "arguments"),
        ("out_tree", out_tree.num_leaves, len(handle.out_avals), "results"),
    )
    for tree, leaves, expected, what in counts:
        if leaves != expected:
            raise ArgumentError(
                f"{tree} has {leaves} leaves, but @{handle.entry} has {expected} {what}",
                where="in make_callable",
                do="in_tree is the structure of (args, kwargs), out_tree that of the result",
            )


def _tree_mismatch(handle: ModuleHandle, expected: PyTreeDef, got: PyTreeDef) -> ArgumentError:
    return ArgumentError(
        f"the arguments of @{handle.entry} have the wrong structure\n"
        f"    expected: {expected}\n    got:      {got}",
        where=f"leaves expected: {', '.join(handle.arg_names or ())}",
        do="pass the same containers, keys and keyword arguments as when it was traced",
    )
