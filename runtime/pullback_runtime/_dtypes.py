"""The element types of MLIR as NumPy has them, ml_dtypes' small ones included."""

from __future__ import annotations

import functools
import re

import ml_dtypes
import numpy as np

from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir

_SPECIAL_DTYPES = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128"}
_NUMBER = re.compile(r"(ui|bf|i|f)(\d+)")
_SMALL_FLOAT = re.compile(r"f(\d)(E\d+M\d+\w*)")
_WORDS = {"ui": "uint", "bf": "bfloat", "i": "int", "f": "float"}


def element_dtype(kind: ir.Type, where: str) -> np.dtype:
    """Return the NumPy dtype of an MLIR element type, or raise ModuleError."""
    try:
        return dtype_named(str(kind))
    except KeyError:
        raise _unknown_element(str(kind), where) from None


@functools.cache
def dtype_named(name: str) -> np.dtype:
    """Return the NumPy dtype of the element type that MLIR spells like this, or raise KeyError."""
    word = _SPECIAL_DTYPES.get(name, "")
    if number := _NUMBER.fullmatch(name):
        word = word or _WORDS[number[1]] + number[2]
    elif small := _SMALL_FLOAT.fullmatch(name):
        word = f"float{small[1]}_{small[2].lower()}"
    return scalar_type(word)


def scalar_type(name: str) -> np.dtype:
    """Return the dtype of this name, from ml_dtypes or NumPy, or raise KeyError."""
    scalar = (getattr(ml_dtypes, name, None) or getattr(np, name, None)) if name else None
    if not isinstance(scalar, type) or not issubclass(scalar, np.generic):
        raise KeyError(name)
    return np.dtype(scalar)


def _unknown_element(name: str, where: str) -> ModuleError:
    return ModuleError(
        f"no NumPy dtype for the element type {name}",
        where=where,
        do="convert it inside the module to a type NumPy or ml_dtypes knows",
    )
