"""Convert a call's arguments to NumPy arrays as JAX would to its own, without JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback_runtime._errors import ArgumentError
from pullback_runtime._signature import ArrayType, FileSignature
from pullback_runtime._signature_check import (
    HasSignature,
    argument_name,
    check_avals,
    no_array,
    spell,
)

NUMBERS: dict[str, type] = {
    "i": np.int32,
    "u": np.int32,
    "O": np.int32,  # an integer of more than 64 bits
    "f": np.float32,
    "c": np.complex64,
}
"""JAX's dtype of Python numbers where their parameter says no other, by NumPy's kind."""

NARROWER = {
    "int64": np.int32,
    "uint64": np.uint32,
    "float64": np.float32,
    "complex128": np.complex64,
}
"""Maps a dtype of 64 bits to the one that JAX narrows it to by default."""


def to_arrays(signature: FileSignature, leaves: Sequence[Any]) -> list[np.ndarray]:
    """Return contiguous arrays of the shapes and dtypes that the program takes.

    Python numbers, and lists of them, take the dtype of their parameter where JAX's promotion of a
    number would. An array of 64 bits is narrowed to 32, as JAX does by default.

    Raises: ArgumentError naming the argument that does not fit.
    """
    values: list[Any] = list(leaves)
    if len(values) == len(signature.in_avals):
        for index, expected in enumerate(signature.in_avals):
            values[index] = _convert(signature, index, values[index], expected)
    check_avals(signature, values, leaves)
    return [np.ascontiguousarray(value).reshape(np.shape(value)) for value in values]


def _convert(signature: FileSignature, index: int, value: Any, expected: ArrayType) -> Any:
    if type(value) in (int, float, complex, list, tuple):
        return as_numbers(signature, index, value)
    array = np.asarray(value)
    if array.dtype.kind in "OUSMm":  # objects, text and times, which have no place in a program
        raise no_array(signature, index, value, expected)
    narrower = NARROWER.get(array.dtype.name)
    if narrower is None or array.dtype == expected.dtype:
        return array
    return _checked(signature, index, array, np.dtype(narrower))


def as_numbers(signature: HasSignature, index: int, value: Any) -> np.ndarray:
    """Convert a Python number, or lists of such, to the dtype that JAX's promotion gives a number.

    Raises: ArgumentError for lists that are no array of numbers, and integers that do not fit.
    """
    expected = signature.in_avals[index]
    dtype = expected.dtype
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # lists of other lengths, or values that JAX traces
        raise no_array(signature, index, value, expected) from None
    if type(value) in (list, tuple) and array.dtype.kind not in "biufcV":
        raise no_array(signature, index, value, expected)
    if array.dtype.kind not in NUMBERS:
        return array
    own = np.dtype(NUMBERS[array.dtype.kind])
    # ml_dtypes has kind "V"; each of them is a float here, or a small integer that takes no number
    inexact = dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name)
    fits = dtype.kind == "c" or (inexact and own.kind != "c")
    wider = own.kind == "i" and dtype == np.int64
    return _checked(signature, index, array, dtype if fits or wider else own)


def _checked(signature: HasSignature, index: int, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Cast an array; raise ArgumentError for an integer that would become another one."""
    if dtype.kind in "iu" and array.dtype.kind in "iuO":
        limits = np.iinfo(dtype)
        if array.size and not (limits.min <= array.min() and array.max() <= limits.max):
            raise ArgumentError(
                f"{argument_name(signature.arg_names, index)} does not fit into "
                f"{spell(signature.in_avals[index])}: it has values from {array.min()} to "
                f"{array.max()}",
                where=f"in a call of @{signature.entry}",
                do="pass smaller integers",
            )
    return array.astype(dtype)
