"""Convert a call's arguments as JAX promotes them, and refuse 64 bits that JAX would narrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pullback_runtime._errors import ArgumentError
from pullback_runtime._handle import ModuleHandle
from pullback_runtime._module import Aval
from pullback_runtime._signature_check import spell as spell


def convert_weak(handle: ModuleHandle, args: Sequence[Any]) -> list[Any]:
    """Cast weakly typed arguments to their parameter's dtype where JAX's promotion would."""
    if len(args) != len(handle.in_avals):
        return list(args)
    return [_convert(arg, aval) for arg, aval in zip(args, handle.in_avals, strict=True)]


def _convert(arg: Any, expected: Aval) -> Any:
    if isinstance(arg, jax.Array) and arg.dtype == expected.dtype:
        return arg
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
