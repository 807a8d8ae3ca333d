"""The leaves of a program's arguments and results, and the trees that a derivative has.

Integer and bool positions have no tangent and no cotangent: the trees of a derived program have
None there.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from pullback._jax import derivatives, tracing
from pullback._jax.tangent_types import is_inexact
from pullback.errors import ArgumentMismatchError, DerivativeTypeError
from pullback_runtime.call._arguments import spell as spell

FLOAT0 = jax.dtypes.float0
Positions = int | Sequence[int] | None
"""One position of an argument, several, or None for all."""


@dataclass(frozen=True)
class Slot:
    """One leaf: its type, how messages call it, and its position among the operands.

    A tangent or cotangent has no position yet, but a `source`: the position of its primal value.
    """

    aval: jax.ShapeDtypeStruct
    path: str
    position: int
    source: int = -1

    # The code of a class may look at these as a tree of slots is built, as it does at arrays'.
    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)

    def tangent(self, what: str) -> Slot:
        """Return the slot of a tangent or cotangent of this leaf."""
        weak, sharding = getattr(self.aval, "weak_type", False), tracing.sharding_of(self.aval)
        aval = jax.ShapeDtypeStruct(
            self.aval.shape, self.aval.dtype, weak_type=weak, sharding=sharding
        )
        return Slot(aval, f"{what} of {self.path}", -1, self.position)


def is_complex(aval: Any) -> bool:
    """Return True if the elements are complex numbers."""
    return jax.dtypes.issubdtype(aval.dtype, np.complexfloating)


def slots(avals: Sequence[Any], paths: Sequence[str], first: int = 0) -> list[Slot]:
    """Return slots at consecutive positions, beginning with `first`."""
    return [Slot(*pair, first + i) for i, pair in enumerate(zip(avals, paths, strict=True))]


def moving(tree: Any, what: str) -> Any:
    """Return the tree of tangents of a tree of slots, with None where there is no tangent."""
    return jax.tree.map(lambda slot: slot.tangent(what) if is_inexact(slot.aval) else None, tree)


def series(tree: Any, order: int) -> Any:
    """Return a tree of slots with a list of terms in the place of each; None where it has none."""

    def terms(slot: Slot) -> list[Slot] | None:
        if not is_inexact(slot.aval):
            return None
        sources = range(slot.position * order, (slot.position + 1) * order)
        return [
            replace(slot.tangent(f"term {k}"), source=source) for k, source in enumerate(sources, 1)
        ]

    return jax.tree.map(terms, tree)


def only(flags: Sequence[bool] | None, primals: Any, tree: Any) -> Any:
    """Return the tree with None in the place of the leaves of `primals` that are not flagged."""
    if flags is None:
        return tree
    structure = jax.tree.structure(primals)
    pairs = zip(structure.flatten_up_to(tree), flags, strict=True)
    return structure.unflatten([part if flag else None for part, flag in pairs])


def inexact_positions(tree: Any) -> tuple[int, ...]:
    """Return the positions of the slots of a tree that have tangents, in order."""
    return tuple(sorted(s.position for s in jax.tree.leaves(tree) if is_inexact(s.aval)))


def positions(argnums: Any) -> int | tuple[int, ...]:
    """Return one position, or several, as Python's numbers, from whatever has integers.

    Raises: ArgumentMismatchError for what is neither.
    """
    try:
        return operator.index(argnums)
    except TypeError:
        pass
    try:
        return tuple(operator.index(number) for number in argnums)
    except TypeError:
        raise _no_position(argnums) from None


def one_of(argnums: Positions, wrt: Positions, default: Positions = None) -> Any:
    """Return the positions that are given by one of two names.

    Raises: ArgumentMismatchError where both are given.
    """
    if wrt is None:
        return argnums
    if argnums is not default:
        raise ArgumentMismatchError(
            f"argnums={argnums!r} and wrt={wrt!r} name the same",
            where=f"argnums={argnums!r}",
            do="leave out one of them",
        )
    return wrt


def _no_position(given: Any) -> ArgumentMismatchError:
    return ArgumentMismatchError(
        f"argnums={given!r} is not a position of an argument, nor several",
        where=f"argnums={given!r}",
        do="count positional arguments from 0; keyword arguments are not differentiated",
    )


def argnums_of(argnums: Positions, count: int) -> Any:
    """Return the positions of arguments, counted from 0; all of them for None.

    Raises:
      ArgumentMismatchError: a position is out of range or appears twice.
    """
    if argnums is None:
        return tuple(range(count))
    given: Any = (argnums,) if np.ndim(argnums) == 0 else argnums
    for number in given:
        if not hasattr(number, "__index__"):
            raise _no_position(argnums)
        if not -count <= number < count:
            raise ArgumentMismatchError(
                f"argnums={argnums} requires at least {_needed(number)} positional arguments, "
                f"but only {count} were given",
                where=f"argnums={argnums}",
                do="count positional arguments from 0; keyword arguments are not differentiated",
            )
    resolved = tuple(int(number) % count for number in given)
    if len(set(resolved)) != len(resolved):
        raise ArgumentMismatchError(
            f"argnums={argnums} names an argument twice", do="name each position once"
        )
    return resolved[0] if np.ndim(argnums) == 0 else resolved


def several(argnums: int | Sequence[int]) -> tuple[int, ...]:
    """Return positions as a tuple, even if there is only one."""
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


def chosen(args: Sequence[Any], argnums: int | Sequence[int]) -> Any:
    """Return the argument at a position, or a tuple of those at several."""
    return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)


def _needed(number: int) -> int:
    return number + 1 if number >= 0 else -number


def restore_zeros(tree: Any, primals: Any) -> Any:
    """Replace None in a tree of tangents or cotangents with zeros: JAX's float0 for an integer.

    `primals` is a tree of avals, or of arrays.
    """
    return jax.tree.map(lambda primal, ct: _zeros(primal) if ct is None else ct, primals, tree)


def _zeros(primal: Any) -> Any:
    return derivatives.zeros_of(primal) if is_inexact(primal) else np.zeros(primal.shape, FLOAT0)


def is_float0(leaf: Any) -> bool:
    return getattr(leaf, "dtype", None) == FLOAT0


def check_inexact(tree: Any, where: str, do: str, allow_int: bool = False) -> None:
    """Raise DerivativeTypeError, with a remedy, for a leaf that is not a float or complex."""
    for slot in jax.tree.leaves(tree):
        if not is_inexact(slot.aval) and not allow_int:
            raise DerivativeTypeError(
                f"{where} requires real- or complex-valued inputs (a float or complex dtype), "
                f"but {slot.path} is {slot.aval.dtype.name}",
                where=slot.path,
                do=do,
            )
