"""Take Taylor mode of functions: `jet`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from pullback._jax.tangent_types import is_inexact
from pullback.api import program_in_jax
from pullback.api.static_arguments import Specializing
from pullback.api.transforms import program_of
from pullback.errors import ArgumentMismatchError
from pullback.program import derivation
from pullback.program.argument_leaves import spell
from pullback.program.memo import derived_once


def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Any],
    factorial_scaled: bool = True,
) -> tuple[Any, Any]:
    """Compute the derivatives of a function along a curve; as `jax.experimental.jet.jet`.

    Each rule is taken, of every op that forward mode can differentiate.

    Args:
      fun: a function that JAX can trace, or a Program.
      primals: its arguments, a tuple or list.
      series: for each argument, a list of the derivatives of the curve, from the first on: of its
        shape and dtype. The argument may be a tree: then each leaf has a list. All lists are of one
        length, the order. For integers and bools, None.
      factorial_scaled: if False, the k-th term is the k-th derivative over k!, in all series.

    Returns:
      `(out, series of out)`: in the structure of `out`, a list for each leaf.

    Raises:
      ArgumentMismatchError: a series does not fit its argument, or there are no terms.
      MissingRuleError: an op on the way has no derivative rule.
      NotLinearError: a backward rule that forward mode has to transpose is not linear.
    """
    order, rows = _checked(primals, series)
    key = order, bool(factorial_scaled)
    make = functools.partial(_derived, *key)
    return derived_once(fun, ("jet", *key), make).call(tuple(primals), {}, rows)


def _derived(order: int, factorial_scaled: bool, get: Callable[[], Any]) -> Any:
    def make(get: Callable[[], Any]) -> Callable[..., Any]:
        def function(primals: Any, kwargs: dict[str, Any], *rows: Any) -> Any:
            program = program_of(get(), primals, kwargs)
            derived = derivation.jet(program, order, factorial_scaled=factorial_scaled)
            out, terms = program_in_jax.apply(derived, (*primals, *rows), {})
            return out, jax.tree.map(_or_zeros, out, terms)

        return function

    def _or_zeros(out: Any, terms: Any) -> Any:
        return [jnp.zeros_like(out)] * order if terms is None else terms

    return Specializing(make, "jet", None, get)


def _checked(primals: Any, series: Any) -> tuple[int, list[Any]]:
    """Return the order, and the series with None for integers.

    Raises:
      ArgumentMismatchError: they do not fit the primal values.
    """
    if not isinstance(primals, tuple | list) or not isinstance(series, tuple | list):
        raise ArgumentMismatchError(
            "primals and series of pb.jet must be tuples or lists; "
            f"found {type(primals).__name__} and {type(series).__name__}",
            do="pass one item per argument: pb.jet(f, (x,), ([dx, ddx],))",
        )
    if len(primals) != len(series):
        raise ArgumentMismatchError(
            f"{len(series)} series for {len(primals)} arguments",
            where=f"series has {len(series)} items",
            do="pass a series for each argument, None for an integer",
        )
    trees, found = [], []
    lists: dict[str, Any] = {}
    for i, (primal, given) in enumerate(zip(primals, series, strict=True)):
        paths, tree = jax.tree_util.tree_flatten_with_path(primal)
        try:
            rows = tree.flatten_up_to(given)
        except (TypeError, ValueError) as error:
            raise ArgumentMismatchError(
                f"a series has another structure than its argument: {error}",
                where=f"series[{i}]",
                do="give each leaf of the argument a list of terms",
            ) from None
        rows = [
            row and [_as_float(t) for t in row] if isinstance(row, tuple | list) else row
            for row in rows
        ]
        names = [f"series[{i}]{jax.tree_util.keystr(path)}" for path, _ in paths]
        lists |= {
            n: row
            for n, row, (_, leaf) in zip(names, rows, paths, strict=True)
            if _has_series(n, row, leaf)
        }
        trees.append(tree)
        found.append(rows)
    return _order(lists), [
        tree.unflatten([row and list(row) for row in rows])
        for tree, rows in zip(trees, found, strict=True)
    ]


def _as_float(term: Any) -> Any:
    """Return a term, a whole number of Python as a float."""
    return float(term) if type(term) is int else term


def _has_series(name: str, row: Any, leaf: Any) -> bool:
    """Return True for the list of terms of a float; raise ArgumentMismatchError for a misfit."""
    if not is_inexact(jax.typeof(leaf)):
        if row is None:
            return False
        raise ArgumentMismatchError(
            "an integer has no series",
            where=name,
            do=f"pass None there, or convert the argument, {spell(jax.typeof(leaf))}, to a float",
        )
    if not isinstance(row, tuple | list):
        raise ArgumentMismatchError(
            f"a series is a list of terms, and this is a {type(row).__name__}",
            where=name,
            do="pass a list of the derivatives of the argument, from the first on",
        )
    for k, term in enumerate(row):
        _check_type(f"{name}[{k}]", term, jax.typeof(leaf))
    return True


def _check_type(name: str, term: Any, expected: Any) -> None:
    """Raise ArgumentMismatchError for a term of another shape or dtype than its argument."""
    try:
        found = jax.typeof(term)
    except TypeError:
        what = f"a {type(term).__name__}"
    else:
        if (found.shape, found.dtype) == (expected.shape, expected.dtype):
            return
        what = spell(found)
    raise ArgumentMismatchError(
        f"a term must have type {spell(expected)}, as its argument, but it is {what}",
        where=name,
        do="give each term the shape and dtype of the argument",
    )


def _order(lists: dict[str, Any]) -> int:
    """Return the number of terms, which is the same in all lists, and at least 1."""
    if not lists:
        raise ArgumentMismatchError(
            "no argument of pb.jet has a series", do="pass a list of terms for one that is a float"
        )
    first, *others = lists
    order = len(lists[first])
    for name in others:
        if len(lists[name]) != order:
            raise ArgumentMismatchError(
                f"a series has {len(lists[name])} terms, and that of {first} has {order}",
                where=name,
                do="pass as many for each argument; zeros for derivatives that are zero",
            )
    if not order:
        raise ArgumentMismatchError(
            "a series without terms", where=first, do="pass one term or more; call the function"
        )
    return order
