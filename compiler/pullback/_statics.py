"""Arguments that are not arrays: strings, functions, and numbers that Python code branches on.

JAX's transformations pass such arguments on as they are. Ours trace, so every number becomes an
abstract value at first; only where that fails, the plain Python values among the arguments that
are not differentiated become part of the function, and each set of values is traced for itself.
Floats, which may be others in every call, are the last to do so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from pullback import _slots
from pullback._cache import has_hash
from pullback._errors import ArgumentMismatchError, PullbackError
from pullback.frontend.identity import Identities
from pullback_runtime._lazy import Recent

ARRAYS = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)
FLOATS = (float, complex)
MOST = 1024
"""Sets of fixed arguments, for each of which there is a compiled program."""


def check_function(given: Any) -> None:
    """Raises where what is to be transformed can never be called."""
    if not callable(given):
        raise ArgumentMismatchError(
            f"expected a function, got {given!r}", do="pass a function that JAX can trace"
        )


def falling_back(
    jitted: Callable[..., Any],
    fun: Callable[..., Any],
    argnums: Any,
    transform: Callable[[Any], Callable[..., Any]],
) -> Callable[..., Any]:
    """`jitted`, and where it fails, `transform(fun)` with plain Python arguments fixed.

    Args:
      argnums: the positions of differentiated arguments, which are always traced.
    """
    check_function(fun)
    fixed = Recent(MOST)  # functions, and the identities that keep alive what these are known by
    failed = Recent(MOST)  # types of arguments that had to be fixed, and were
    differentiated = _slots.several(argnums)

    def fixing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function with arguments fixed, and those that are left; None where none can be."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        resolved = {number % len(args) for number in differentiated if args}
        mine = jax.tree.leaves([[i in resolved] * _size(arg) for i, arg in enumerate(args)])
        mine += [False] * (len(leaves) - len(mine))
        plain = {
            i: leaf for i, leaf in enumerate(leaves) if not mine[i] and not isinstance(leaf, ARRAYS)
        }
        values = {i: leaf for i, leaf in plain.items() if not isinstance(leaf, FLOATS)} or plain
        if not values or not has_hash(tuple(values.values())):
            return None
        identities = Identities(of_arguments=True)
        identities.begin(by_contents=False)
        signature = identities.rules(None, tuple(values.items()))
        # Functions made anew that look alike may have found other global variables.
        key = tree, signature, tuple(values.values()) if identities.reads_globals else None
        found = fixed.get(key) or (transform(fix(fun, tree, values)), identities)
        again, _ = found if identities.may_change else fixed.keep(key, found)
        left = [None if i in values else leaf for i, leaf in enumerate(leaves)]
        return again, *jax.tree.unflatten(tree, left)

    @functools.wraps(fun, updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        error: Exception | None = None
        types = _types(args, kwargs) if failed else None
        if types is None or not failed.get(types):
            try:
                return jitted(*args, **kwargs)
            except PullbackError:
                raise
            except (TypeError, ValueError) as failure:
                error = failure
        found = fixing(args, kwargs)
        if found is None and error is not None:
            raise error
        again, left, named = found or (jitted, args, kwargs)
        results = again(*left, **named)
        if error is not None and (types := types or _types(args, kwargs)) is not None:
            failed.keep(types, True)
        return results

    return function


def _types(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
    """What decides whether numbers can be abstract; None where that has no hash."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    types = tree, *((x.shape, x.dtype) if isinstance(x, ARRAYS) else type(x) for x in leaves)
    return types if has_hash(types) else None


def fix(fun: Callable[..., Any], tree: Any, values: dict[int, Any]) -> Callable[..., Any]:
    """The function with these leaves of its arguments fixed; None stands for them in a call."""
    names = range(tree.num_leaves)

    @functools.wraps(fun, updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        given = iter(jax.tree.leaves((args, kwargs)))
        leaves = [values[i] if i in values else next(given) for i in names]
        args, kwargs = jax.tree.unflatten(tree, leaves)
        return fun(*args, **kwargs)

    return function


def _size(tree: Any) -> int:
    return jax.tree.structure(tree).num_leaves
