"""Convert a call's arguments as JAX promotes them, and refuse 64 bits that JAX would narrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pullback_runtime._errors import ArgumentError, DimensionError
from pullback_runtime.call._arguments import (
    HasSignature,
    as_numbers,
    check_avals,
    in_positions,
    promoted,
    spell,
)
from pullback_runtime.call._handle import ModuleHandle
from pullback_runtime.call._jax_trees import flatten_call
from pullback_runtime.ir._module import Aval


def convert_weak(handle: ModuleHandle, args: Sequence[Any]) -> list[Any]:
    """Cast weakly typed arguments to their parameter's dtype where JAX's promotion would."""
    if len(args) != len(handle.in_avals):
        return list(args)
    return [_convert(arg, aval) for arg, aval in zip(args, handle.in_avals, strict=True)]


def _convert(arg: Any, expected: Aval) -> Any:
    if isinstance(arg, jax.Array) and arg.dtype == expected.dtype:
        return arg
    dtype = promoted_dtype(arg, expected.dtype)
    same = dtype == getattr(jax.typeof(arg), "dtype", dtype)
    return arg if same else jax.lax.convert_element_type(arg, dtype)


def promoted_dtype(arg: Any, expected: Any) -> Any:
    """Return an argument's dtype after JAX's weak-type promotion to the parameter's dtype.

    Only a weakly typed argument, such as a Python number, is promoted. Returns None for a value
    that is not an array.
    """
    aval = jax.typeof(arg)
    found: Any = getattr(aval, "dtype", None)
    if not getattr(aval, "weak_type", False) or not isinstance(expected, np.dtype):
        return found
    return jax.dtypes.canonicalize_dtype(promoted(found, expected))


def refit(
    error: Exception,
    signature: HasSignature,
    in_tree: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    """Return the `(args, kwargs)` of a rejected call, with lists of numbers as arrays.

    A call that JAX takes pays nothing for this.

    Args:
      error: what rejected the call, raised where there are no lists to convert.

    Raises: ArgumentError naming the type given, of which JAX may have had a narrower one.
    """
    names, places = signature.arg_names or (), len(in_tree.children()[0].children())
    try:
        given = flatten_call(in_tree, *in_positions(names, places, args, kwargs), lists=True)
    except ArgumentError:
        raise error from None
    lists = [each for each in given if type(each) in (list, tuple)]
    of_arrays = any(isinstance(each, jax.Array) for each in jax.tree.leaves(lists))
    if of_arrays or len(given) != len(signature.in_avals):
        raise error
    kind = DimensionError if isinstance(error, DimensionError) else ArgumentError
    values = [
        as_numbers(signature, index, value) if type(value) in (list, tuple) else value
        for index, value in enumerate(given)
    ]
    try:
        check_avals(signature, list(map(_type_of, values, signature.in_avals)), given, kind)
    except ArgumentError as better:
        raise better from None
    if all(value is each for value, each in zip(values, given, strict=True)):
        raise error
    fitted: tuple[Any, Any] = jax.tree.unflatten(in_tree, values)
    return fitted


def _type_of(value: Any, expected: Any) -> Any:
    """Return the type of a value as JAX promotes it; what cannot be compared is as expected."""
    dtype = promoted_dtype(value, expected.dtype)
    if not isinstance(dtype, np.dtype):  # a random key
        return expected
    is_fixed = all(isinstance(size, int) for size in expected.shape)
    return jax.ShapeDtypeStruct(np.shape(value) if is_fixed else expected.shape, dtype)


def check_sixty_four_bits(handle: ModuleHandle) -> None:
    """Raise ArgumentError if the module has 64-bit arguments or results, and x64 is disabled."""
    if jax.config.jax_enable_x64:
        return
    sides = (("argument", handle.in_avals), ("result", handle.out_avals))
    wide = ((f"{what} {i}", aval) for what, avals in sides for i, aval in enumerate(avals))
    for what, aval in wide:
        if jax.dtypes.canonicalize_dtype(aval.dtype) != aval.dtype:
            raise ArgumentError(
                f"{what} of @{handle.entry} is {spell(aval)}, but JAX makes 64-bit arrays 32-bit",
                where="in compiling the module",
                do="set JAX_ENABLE_X64=1 in the environment, or call "
                "jax.config.update('jax_enable_x64', True) before any array is made",
            )
