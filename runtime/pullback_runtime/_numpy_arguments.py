"""Convert a call's arguments to NumPy arrays as JAX would to its own, without JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback_runtime._errors import ArgumentError
from pullback_runtime._signature import ArrayType, FileSignature
from pullback_runtime._signature_check import argument_name, check_avals, no_array, spell

NUMBERS: dict[type, type] = {int: np.int32, float: np.float32, complex: np.complex64}
"""The dtype of a Python number where its parameter does not say another: JAX's."""

NARROWER = {
    "int64": np.int32,
    "uint64": np.uint32,
    "float64": np.float32,
    "complex128": np.complex64,
}
"""Maps a dtype of 64 bits to the one that JAX narrows it to by default."""


def to_arrays(signature: FileSignature, leaves: Sequence[Any]) -> list[np.ndarray]:
    """Return contiguous arrays of the shapes and dtypes that the program takes.

    A Python number takes the dtype of its parameter where JAX's promotion would. An array of 64
    bits is narrowed to 32, as JAX does by default.

    Raises: ArgumentError naming the argument that does not fit.
    """
    values: list[Any] = list(leaves)
    if len(values) == len(signature.in_avals):
        for index, expected in enumerate(signature.in_avals):
            values[index] = _convert(signature, index, values[index], expected)
    check_avals(signature, values)
    return [np.ascontiguousarray(value).reshape(np.shape(value)) for value in values]


def _convert(signature: FileSignature, index: int, value: Any, expected: ArrayType) -> Any:
    if type(value) in NUMBERS:
        return _number(signature, index, value, expected.dtype)
    array = np.asarray(value)
    if array.dtype.kind in "OUSMm":  # objects, text and times, which have no place in a program
        raise no_array(signature, index, value, expected)
    narrower = NARROWER.get(array.dtype.name)
    if narrower is None or array.dtype == expected.dtype:
        return array
    return _checked(signature, index, array, np.dtype(narrower))


def _number(signature: FileSignature, index: int, value: Any, dtype: np.dtype) -> np.ndarray:
    own = np.dtype(NUMBERS[type(value)])
    # ml_dtypes has kind "V"; each of them is a float here, or a small integer that takes no number
    inexact = dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name)
    fits = dtype.kind == "c" or (inexact and own.kind != "c")
    wider = own.kind == "i" and dtype == np.int64
    return _checked(signature, index, np.asarray(value), dtype if fits or wider else own)


def _checked(
    signature: FileSignature, index: int, array: np.ndarray, dtype: np.dtype
) -> np.ndarray:
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
