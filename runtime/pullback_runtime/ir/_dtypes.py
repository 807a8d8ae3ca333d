"""Find dtypes of NumPy and ml_dtypes by name, and for element types of MLIR."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

import numpy as np

from pullback_runtime._errors import ModuleError

_SPECIAL_DTYPES = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128"}
_NUMBER = re.compile(r"(ui|bf|i|f)(\d+)")
_SMALL_FLOAT = re.compile(r"f(\d)(E\d+M\d+\w*)")
_WORDS = {"ui": "uint", "bf": "bfloat", "i": "int", "f": "float"}


def element_dtype(kind: Any, where: str) -> np.dtype:
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
    """Return the dtype of this name, from NumPy or ml_dtypes.

    Raises: KeyError for any other name; ModuleError for one that needs ml_dtypes, without it.
    """
    scalar = getattr(np, name, None) if name else None
    if name and scalar is None:
        try:
            scalar = getattr(importlib.import_module("ml_dtypes"), name, None)
        except ImportError as error:
            raise ModuleError(
                f"NumPy has no dtype {name}", do="pip install ml_dtypes, which has it"
            ) from error
    if not isinstance(scalar, type) or not issubclass(scalar, np.generic):
        raise KeyError(name)
    return np.dtype(scalar)


def _unknown_element(name: str, where: str) -> ModuleError:
    return ModuleError(
        f"no NumPy dtype for the element type {name}",
        where=where,
        do="convert it inside the module to a type NumPy or ml_dtypes knows",
    )
