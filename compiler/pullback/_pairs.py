"""The linear maps that `vjp` and `linearize` return, and what they take."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pullback import _calls, _slots
from pullback._errors import ArgumentMismatchError
from pullback._jax import high
from pullback._program import Program
from pullback.frontend.keep import high_type
from pullback_runtime import ArgumentError, _trees


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
        moving = check_tree(self.out, cotangents[0], "cotangent", "result")
        return self._jitted(residuals, moving)

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
        return self._jitted(residuals, *check_tree(self.primals, tangents, "tangent", ""))

    @functools.cached_property
    def _jitted(self) -> Any:
        def push(residuals: Any, *tangents: Any) -> Any:
            found = _calls.apply(self.linear, (residuals, *tangents), {})
            return _slots.restore_float0(found, self.out)

        return jax.jit(push)


def check_tangents(primals: Any, tangents: Any) -> Any:
    """The tangents of what has one; raises ArgumentMismatchError unless they fit the primals."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentMismatchError(
            "primal and tangent arguments to pb.jvp must be tuples or lists; "
            f"found {type(primals).__name__} and {type(tangents).__name__}",
            do="pass one item per argument: pb.jvp(f, (x,), (dx,))",
        )
    return check_tree(tuple(primals), tuple(tangents), "tangent", "primals")


def check_tree(primals: Any, given: Any, what: str, root: str) -> Any:
    """`given` with None where there is no tangent or cotangent, as for an integer.

    Raises ArgumentMismatchError where it does not fit `primals`, naming the path. As in JAX, a
    number of another kind does not fit, such as 1 for 1.0; the cotangent of an integer can be
    anything.
    """
    expected = jax.tree.structure(primals)
    found = jax.tree.structure(given)
    if found != expected and _trees.has_fields(expected):
        with contextlib.suppress(ArgumentError):
            given = expected.unflatten(_trees.flatten_arguments(expected, given))
            found = expected
    if found != expected and not _fits_with_none(primals, given):
        raise ArgumentMismatchError(
            f"the {what}s must have the same tree structure as the primal values\n"
            f"    expected: {expected}\n    got:      {found}",
            where=_first_difference(primals, given, root),
            do=f"build the {what}s with jax.tree.map over the primal values",
        )
    leaves, tree = jax.tree.flatten(primals)
    pairs = list(zip(leaves, tree.flatten_up_to(given), strict=True))
    for i, (primal, other) in enumerate(pairs):
        if not _fits(primal, other, what):
            path = jax.tree_util.tree_flatten_with_path(primals)[0][i][0]
            where = f"{what} of {root}{jax.tree_util.keystr(path)}"
            raise _misfit(primal, other, what, where)
    return tree.unflatten([other if _moves(primal) else None for primal, other in pairs])


def _fits(primal: Any, other: Any, what: str) -> bool:
    """Whether a tangent or cotangent is of the same kind as its primal value.

    The program that takes it checks all but weak types, such as those of Python's numbers.
    """
    if not _moves(primal):
        return what == "cotangent" or other is None or _slots.is_float0(other)
    if getattr(other, "dtype", None) == getattr(primal, "dtype", ""):
        return True
    found = _type_of(other)
    return not found.weak_type or _kind(found.dtype) == _kind(_type_of(primal).dtype)


@functools.cache
def _kind(dtype: Any) -> Any:
    kinds = np.complexfloating, np.floating
    return next((kind for kind in kinds if jax.dtypes.issubdtype(dtype, kind)), None)


def _type_of(value: Any) -> Any:
    is_type = isinstance(value, (jax.core.ShapedArray, jax.ShapeDtypeStruct))
    found = value if is_type else jax.typeof(value)
    if high.is_type(found):
        raise high_type(found, "among the tangents or cotangents")
    return found


def _misfit(primal: Any, other: Any, what: str, where: str) -> ArgumentMismatchError:
    if not _moves(primal):
        return ArgumentMismatchError(
            f"{where} must be a float0 zero or None: an integer has no {what}",
            where=where,
            do="pass None there",
        )
    expected, found = (_slots.spell(_type_of(value)) for value in (primal, other))
    return ArgumentMismatchError(
        f"{where} must have type {expected}, but it is {found}",
        where=where,
        do="give tangents and cotangents the shape and dtype of their primal values",
    )


def _fits_with_none(primals: Any, given: Any) -> bool:
    """Whether the trees agree when None stands for the tangent of an integer."""
    try:
        pairs: Sequence[Any] = jax.tree.leaves(
            jax.tree.map(lambda primal, other: _Pair(primal, other), primals, given)
        )
    except ValueError:
        return False
    return all(not _moves(pair.primal) or jax.tree_util.all_leaves([pair.other]) for pair in pairs)


@dataclass(frozen=True)
class _Pair:
    primal: Any
    other: Any


def _moves(primal: Any) -> bool:
    dtype = getattr(primal, "dtype", None)
    if dtype is None and high.has_type(primal):
        raise high_type(jax.typeof(primal), "among the primal values")
    return _kind(dtype or np.result_type(primal)) is not None


def _first_difference(primals: Any, given: Any, root: str) -> str:
    """The path of the first leaf that only one of the trees has."""
    ours, theirs = (
        [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
        for tree in (primals, given)
    )
    different = [path for path in [*ours, *theirs] if (path in ours) != (path in theirs)]
    return root + (different[0] if different else "")
