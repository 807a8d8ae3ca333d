"""Check a call's arguments against a module's signature; errors name the argument.

The checks run while JAX traces a call, so a call with shapes seen before pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pullback_runtime._errors import ArgumentError
from pullback_runtime._handle import ModuleHandle
from pullback_runtime._module import Aval


def convert_weak(handle: ModuleHandle, args: Sequence[Any]) -> list[Any]:
    """Cast weakly typed arguments to their parameter's dtype where JAX's promotion would."""
    if len(args) != len(handle.in_avals):
        return list(args)
    return [_convert(arg, aval) for arg, aval in zip(args, handle.in_avals, strict=True)]


def _convert(arg: Any, expected: Aval) -> Any:
    promoted = promoted_dtype(arg, expected.dtype)
    same = promoted == getattr(jax.typeof(arg), "dtype", promoted)
    return arg if same else jax.lax.convert_element_type(arg, promoted)


def promoted_dtype(arg: Any, expected: Any) -> Any:
    """Return an argument's dtype after JAX's weak-type promotion to the parameter's dtype.

    Only a weakly typed argument, such as a Python number, is promoted. Returns None for a value
    that is not an array.
    """
    aval = jax.typeof(arg)
    found = getattr(aval, "dtype", None)
    if not getattr(aval, "weak_type", False) or found == expected:
        return found
    # Floats give way to narrower ones. An integer might not fit, so it is an error there.
    inexact = jax.dtypes.issubdtype(expected, np.inexact)
    try:
        return jax.numpy.result_type(arg if inexact else aval, np.zeros((), expected))
    except ValueError:  # JAX promotes no complex number to a float of 8 bits
        return found


def check_avals(handle: ModuleHandle, avals: Sequence[Any]) -> None:
    """Raise ArgumentError unless count, shapes and dtypes match the module's signature."""
    if len(avals) != len(handle.in_avals):
        raise ArgumentError(
            f"@{handle.entry} takes {len(handle.in_avals)} arguments, got {len(avals)}",
            where=f"parameters: {_listed(handle)}",
            do="pass one array per parameter, in this order",
        )
    for index, (aval, expected) in enumerate(zip(avals, handle.in_avals, strict=True)):
        if not hasattr(aval, "dtype"):
            raise _no_array(handle, index, aval, expected)
        if tuple(aval.shape) != expected.shape or aval.dtype != expected.dtype:
            raise _mismatch(handle, index, aval, expected)


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


def _mismatch(handle: ModuleHandle, index: int, aval: Any, expected: Aval) -> ArgumentError:
    return ArgumentError(
        f"{argument_name(handle.arg_names, index)} has the wrong {_difference(aval, expected)}: "
        f"expected {spell(expected)}, got {spell(aval)}",
        where=f"in a call of @{handle.entry}",
        do=_remedy(aval, expected),
    )


def _no_array(handle: ModuleHandle, index: int, aval: Any, expected: Aval) -> ArgumentError:
    """Return the error for an argument whose type is user-defined (jax.experimental.hijax)."""
    return ArgumentError(
        f"{argument_name(handle.arg_names, index)} is no array: "
        f"expected {spell(expected)}, got {type(aval).__name__}",
        where=f"in a call of @{handle.entry}",
        do="make an array of it first",
    )


def _difference(aval: Any, expected: Aval) -> str:
    return "dtype" if tuple(aval.shape) == expected.shape else "shape"


def _remedy(aval: Any, expected: Aval) -> str:
    if tuple(aval.shape) != expected.shape:
        return "pass an array of the expected shape, or trace the program for this one"
    return f"convert it: jax.numpy.asarray(x, {expected.dtype.name!r})"


def argument_name(names: Sequence[str] | None, index: int) -> str:
    """Return an argument's name for messages: its position, and its path if that is known."""
    if names is None or index >= len(names):
        return f"argument {index}"
    return f"argument {index} ({names[index]})"


def _listed(handle: ModuleHandle) -> str:
    names = handle.arg_names or tuple(str(i) for i in range(len(handle.in_avals)))
    pairs = [f"{n}: {spell(a)}" for n, a in zip(names, handle.in_avals, strict=False)]
    shown = pairs if len(pairs) <= 8 else [*pairs[:8], f"… {len(pairs) - 8} more"]
    return ", ".join(shown) or "none"


def spell(aval: Any) -> str:
    """Format a type for messages, such as `float32[8,128]`."""
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"
