"""Reflection: the parts of Python objects, and what functions close over, recursively."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax

from pullback._jax import reflect, source_info

LONGEST = 64
"""Lists of more items hold data, not functions."""

Variable = tuple[types.FunctionType, str, Any]
"""A function, the name of a variable that it closes over, and the value of that."""


def variables(value: Any) -> Iterator[Variable]:
    """Yield the variables that functions in a value close over, recursively."""
    for each in reachable(value):
        if isinstance(each, types.FunctionType):
            yield from closed_over(each)


def reachable(
    value: Any,
    backward: bool = False,
    seen: dict[int, Any] | None = None,
) -> Iterator[Any]:
    """Yield a value, what it holds, and what functions in there close over, recursively.

    Args:
      backward: also through the backward rules of functions.
      seen: objects by identity, which are left out.
    """
    pending, seen = [value], {} if seen is None else seen
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind in _PLAIN or id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        if kind is types.FunctionType:
            pending.extend(value.__defaults__ or ())
            pending.extend((value.__kwdefaults__ or {}).values())
            pending.extend(v for _, _, v in closed_over(value))
            continue
        if kind not in _openers:
            _openers[kind] = _opener(value)
        if (parts := _openers[kind]) is not None:
            pending.extend(parts(value))
        if backward and kind is jax.custom_vjp:
            pending.append(getattr(value, "bwd", None))


def of_user(value: Any) -> types.FunctionType | None:
    """Return the first function in a value that a user wrote, such as a rule in JAX's wrappers."""
    functions = (each for each in reachable(value) if isinstance(each, types.FunctionType))
    return next((f for f in functions if source_info.is_user_file(f.__code__.co_filename)), None)


_PLAIN = reflect.BY_VALUE | {str, bytes, int, float, complex, bool, type(None), types.CodeType}


class Nothing:
    """Stands for the value of a variable that is not assigned yet, or has been deleted."""


def closed_over(function: types.FunctionType) -> Iterator[Variable]:
    """Yield the variables that a function closes over."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield function, name, contents(cell)


def contents(cell: types.CellType) -> Any:
    """Return the value of a variable that a function closes over; Nothing if it has no value."""
    try:
        return cell.cell_contents
    except ValueError:
        return Nothing


_openers: WeakKeyDictionary[type, Callable[[Any], Sequence[Any]] | None] = WeakKeyDictionary()
"""By class, a function that returns the parts of its objects; None if they cannot have any."""


def _opener(value: Any) -> Callable[[Any], Sequence[Any]] | None:
    """Return a function that lists the parts of objects of this one's class; None without parts."""
    if reflect.is_debug_info(value):
        return None
    if isinstance(value, (tuple, list)):
        return lambda value: value if len(value) <= LONGEST else ()
    if isinstance(value, dict):
        return lambda value: tuple(value.values()) if len(value) <= LONGEST else ()
    if isinstance(value, functools.partial):
        return lambda value: (value.func, value.args, tuple(value.keywords.values()))
    if reflect.opened(value) is not None:
        return lambda value: reflect.opened(value)[1]  # type: ignore[index]
    if reflect.functions_of(value):
        return reflect.functions_of
    return None if jax.tree_util.all_leaves([value]) else _leaves


def _leaves(tree: Any) -> Sequence[Any]:
    """Return the leaves of a tree; none if JAX cannot flatten it, as with keys of two types."""
    try:
        return jax.tree.leaves(tree)
    except (TypeError, ValueError):
        return ()
