"""Inspect objects of JAX, and what Python functions close over."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import core as _core, linear_util as _linear_util, util as _util
from jax.extend import core as _extend_core, linear_util as _public_linear_util


def functions_of(value: Any) -> Sequence[Any]:
    """Return the functions in a jitted function or one with rules; nothing for other objects."""
    if isinstance(value, (jax.custom_jvp, jax.custom_vjp)):
        names = ("fun", "jvp", "fwd")
        return [function for name in names if (function := getattr(value, name, None)) is not None]
    is_jitted = hasattr(value, "__wrapped__") and hasattr(value, "trace")
    return [value.__wrapped__] if is_jitted else []


def rules_of(value: Any) -> Sequence[Any]:
    """Return the custom rules of a function, the forward one first; nothing for other objects."""
    if not isinstance(value, (jax.custom_jvp, jax.custom_vjp)):
        return []
    found = (getattr(value, name, None) for name in ("jvp", "fwd", "bwd"))
    return [rule for rule in found if rule is not None]


def is_of_a_user(value: Any) -> bool:
    """Return True if a class or function is a user's: not Python's, NumPy's, JAX's or ours."""
    names = getattr(value, "__globals__", None)
    module = value.__module__ if names is None else names.get("__name__")
    return str(module).partition(".")[0] not in _OF_NO_USER


def stays_as_it_is(value: Any) -> bool:
    """Return True if an object is a JAX array, a module, or a callable of no user-defined class."""
    is_plain_function = callable(value) and not is_of_a_user(type(value))
    return is_plain_function or isinstance(value, (jax.Array, types.ModuleType))


_OF_NO_USER = sys.stdlib_module_names | {"jax", "jaxlib", "numpy", "ml_dtypes", "pullback"}


BY_VALUE = frozenset({jax.core.ShapedArray, jax.tree_util.PyTreeDef})
"""Classes of JAX whose objects hold no functions, and are equal if they say the same."""


def is_debug_info(value: object) -> bool:
    """Return True if this is a function's `DebugInfo`, which JAX uses in messages."""
    return isinstance(value, _extend_core.DebugInfo)


def names_in_debug_info(info: Any) -> tuple[Any, ...]:
    """Return the names of the function and of its arguments in a `DebugInfo`.

    Those of the results are left out: JAX makes them anew in each trace of the function.
    """
    return info.traced_for, info.func_src_info, info.arg_names


def is_wrapped_function(value: object) -> bool:
    """Return True if this is JAX's `WrappedFun`: a function and transformations to apply to it."""
    return isinstance(value, _public_linear_util.WrappedFun)


def opened(value: Any) -> tuple[str, tuple[Any, ...]] | None:
    """Return kind and contents of a method, or of a JAX object that wraps others; None otherwise.

    A `Store`, in which a transformation leaves a second result, counts as empty.
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


def variable(function: Any, *names: str) -> Any:
    """Return the value of the variable of one of these names that a function of JAX closes over.

    None if it closes over none of them, and for other objects.
    """
    if not isinstance(function, types.FunctionType) or is_of_a_user(function):
        return None
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = (cell for name, cell in cells if name in names and cell != types.CellType())
    return next((cell.cell_contents for cell in found), None)


def has_name(axis: Any) -> bool:
    """Return True if the axis that a vmap maps has a name, which collectives can use."""
    return axis.name is not _core.no_axis_name
