"""Objects of JAX that functions close over, and what a Python function closes over."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import core as _core, linear_util as _linear_util, util as _util


def functions_of(value: Any) -> Sequence[Any]:
    """The functions inside a jitted one, or one with rules; nothing for other objects."""
    if isinstance(value, (jax.custom_jvp, jax.custom_vjp)):
        names = ("fun", "jvp", "fwd")
        return [function for name in names if (function := getattr(value, name, None)) is not None]
    is_jitted = hasattr(value, "__wrapped__") and hasattr(value, "trace")
    return [value.__wrapped__] if is_jitted else []


def rules_of(value: Any) -> Sequence[Any]:
    """The rules of a function that has them, the forward one first; nothing for other objects."""
    if not isinstance(value, (jax.custom_jvp, jax.custom_vjp)):
        return []
    found = (getattr(value, name, None) for name in ("jvp", "fwd", "bwd"))
    return [rule for rule in found if rule is not None]


def is_of_a_user(value: Any) -> bool:
    """Whether a class or a function is written by a user: not in JAX, nor in what it builds on."""
    names = getattr(value, "__globals__", None)
    module = value.__module__ if names is None else names.get("__name__")
    return str(module).partition(".")[0] not in _OF_NO_USER


def stays_as_it_is(value: Any) -> bool:
    """Whether an object is an array of JAX's, a module, or a function that holds nothing."""
    is_plain_function = callable(value) and not is_of_a_user(type(value))
    return is_plain_function or isinstance(value, (jax.Array, types.ModuleType))


_OF_NO_USER = sys.stdlib_module_names | {"jax", "jaxlib", "numpy", "ml_dtypes", "pullback"}


def is_debug_info(value: object) -> bool:
    """Whether this is what JAX notes of a function for its messages."""
    return isinstance(value, _linear_util.DebugInfo)


def names_in_debug_info(info: Any) -> tuple[Any, ...]:
    """The function that JAX's notes are of, and its arguments.

    Not the results: JAX finds their names when it has traced the function, each time anew.
    """
    return info.traced_for, info.func_src_info, info.arg_names


def is_wrapped_function(value: object) -> bool:
    """Whether this is one of JAX's functions with transformations put on it."""
    return isinstance(value, _linear_util.WrappedFun)


def opened(value: Any) -> tuple[str, tuple[Any, ...]] | None:
    """Return the kind of a method, or of an object of JAX's around others, and what it holds.

    Of a box in which a transformation leaves a second result, that is nothing.
    """
    if isinstance(value, types.MethodType):
        return "method", (value.__func__, value.__self__)
    if is_wrapped_function(value):
        return "wrapped", (value.f, value.transforms, value.params)
    if isinstance(value, _util.Unhashable):  # around an argument without derivatives
        return "box", (value.val,)
    if isinstance(value, jax.stages.Traced):
        return "traced", (value.jaxpr,)
    if isinstance(value, (_linear_util.Store, _linear_util.EqualStore)):
        return "store", ()
    return None


def held_by_jax(function: Any) -> list[Any]:
    """What a function of JAX's own closes over; nothing for other objects."""
    if not isinstance(function, types.FunctionType) or is_of_a_user(function):
        return []
    cells = function.__closure__ or ()
    return [cell.cell_contents for cell in cells if cell != types.CellType()]


def has_name(axis: Any) -> bool:
    """Whether collectives can name the axis that a vmap maps."""
    return axis.name is not _core.no_axis_name
