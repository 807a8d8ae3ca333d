"""The linear maps that `vjp` and `linearize` return, and what they take."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pullback import _calls, _slots
from pullback._errors import ArgumentMismatchError
from pullback._program import Program


@dataclass(frozen=True, eq=False)
class PullBack:
    """Cotangents of a function's result to those of its arguments; the residuals come first.

    Attributes:
      linear: the program that does it.
      primals: types of the function's arguments.
      out: types of its result.
    """

    linear: Program
    primals: Any
    out: Any

    def __call__(self, residuals: Any, *cotangents: Any) -> Any:
        if len(cotangents) != 1:
            raise ArgumentMismatchError(
                f"a VJP function takes one argument, but got {len(cotangents)}",
                do="pass the cotangents of several results as one tree, structured as the result",
            )
        check_tree(self.out, cotangents[0], "cotangent", "result")
        return self._jitted(residuals, _slots.without_float0(cotangents[0]))

    @functools.cached_property
    def _jitted(self) -> Any:
        def pull(residuals: Any, cotangent: Any) -> Any:
            found = _calls.apply(self.linear, (residuals, cotangent), {})
            return _slots.restore_float0(found, self.primals)

        return jax.jit(pull)


@dataclass(frozen=True, eq=False)
class PushForward:
    """Tangents of a function's arguments to those of its result; the residuals come first."""

    linear: Program
    primals: Any
    out: Any

    def __call__(self, residuals: Any, *tangents: Any) -> Any:
        check_tree(self.primals, tangents, "tangent", "")
        return self._jitted(residuals, *_slots.without_float0(tangents))

    @functools.cached_property
    def _jitted(self) -> Any:
        def push(residuals: Any, *tangents: Any) -> Any:
            found = _calls.apply(self.linear, (residuals, *tangents), {})
            return _slots.restore_float0(found, self.out)

        return jax.jit(push)


def check_tangents(primals: Any, tangents: Any) -> None:
    """Raises ArgumentMismatchError unless tangents fit the primals of a `jvp`."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentMismatchError(
            "primal and tangent arguments to pb.jvp must be tuples or lists; "
            f"found {type(primals).__name__} and {type(tangents).__name__}",
            do="pass one item per argument: pb.jvp(f, (x,), (dx,))",
        )
    check_tree(tuple(primals), tuple(tangents), "tangent", "primals")


def check_tree(primals: Any, given: Any, what: str, root: str) -> None:
    """Raises ArgumentMismatchError where `given` does not fit `primals`, naming the path."""
    expected = jax.tree.structure(primals)
    found = jax.tree.structure(given)
    if found != expected and not _fits_with_none(primals, given):
        raise ArgumentMismatchError(
            f"the {what}s must have the same tree structure as the primal values\n"
            f"    expected: {expected}\n    got:      {found}",
            where=_first_difference(primals, given, root),
            do=f"build the {what}s with jax.tree.map over the primal values",
        )


def _fits_with_none(primals: Any, given: Any) -> bool:
    """Whether the trees agree when None stands for the tangent of an integer."""
    try:
        pairs: Sequence[Any] = jax.tree.leaves(
            jax.tree.map(lambda primal, other: _Pair(primal, other), primals, given)
        )
    except ValueError:
        return False
    return all(pair.other is not None or not _moves(pair.primal) for pair in pairs)


@dataclass(frozen=True)
class _Pair:
    primal: Any
    other: Any


def _moves(primal: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(primal, "dtype", np.result_type(primal)), np.inexact)


def _first_difference(primals: Any, given: Any, root: str) -> str:
    """The path of the first leaf that only one of the trees has."""
    ours, theirs = (
        [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
        for tree in (primals, given)
    )
    different = [path for path in [*ours, *theirs] if (path in ours) != (path in theirs)]
    return root + (different[0] if different else "")
