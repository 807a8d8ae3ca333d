"""Convert a call's arguments and check them against a signature, with JAX and without it.

Errors name the argument. JAX runs the checks while it traces a call, so a call with shapes seen
before pays nothing for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pullback_runtime._errors import ArgumentError

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


class HasSignature(Protocol):
    """Name what the checks read of a handle, or of a program from a file."""

    @property
    def entry(self) -> str:
        """The name of the function."""

    @property
    def in_avals(self) -> Sequence[Any]:
        """Shape and dtype of each argument."""

    @property
    def arg_names(self) -> Sequence[str] | None:
        """The path of each argument."""


class CallSignature(NamedTuple):
    """Hold the signature of a function whose types are known without its module."""

    in_avals: Sequence[Any]
    arg_names: Sequence[str]
    entry: str = "main"


def in_positions(
    paths: Sequence[str], count: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call's arguments, with those passed by the names in `paths` in their positions.

    Args:
      paths: of the leaves, as `describe()` shows them: `params['w']` is of the argument `params`.
      count: of positional arguments.
    """
    names = list(dict.fromkeys(re.split(r"[\[.]", path)[0] for path in paths))[len(args) : count]
    if not names or len(args) + len(names) != count or not kwargs.keys() >= set(names):
        return args, kwargs
    rest = {name: value for name, value in kwargs.items() if name not in names}
    return (*args, *(kwargs[name] for name in names)), rest


def check_avals(
    handle: HasSignature,
    avals: Sequence[Any],
    given: Sequence[Any] | None = None,
    kind: type[ArgumentError] = ArgumentError,
) -> None:
    """Raise ArgumentError unless count, shapes and dtypes match the module's signature.

    Args:
      given: what the caller passed, where `avals` are converted already; the error names its types.
    """
    if len(avals) != len(handle.in_avals):
        raise ArgumentError(
            f"@{handle.entry} takes {len(handle.in_avals)} arguments, got {len(avals)}",
            where=f"parameters: {_listed(handle)}",
            do="pass one array per parameter, in this order",
        )
    for index, (aval, expected) in enumerate(zip(avals, handle.in_avals, strict=True)):
        if not hasattr(aval, "dtype"):
            raise no_array(handle, index, aval, expected)
        if tuple(aval.shape) != expected.shape or aval.dtype != expected.dtype:
            what = "dtype" if tuple(aval.shape) == expected.shape else "shape"
            raise mismatch(handle, index, what, aval if given is None else given[index], kind)


def mismatch(
    handle: HasSignature,
    index: int,
    what: str,
    given: Any,
    kind: type[ArgumentError] = ArgumentError,
) -> ArgumentError:
    """Return the error for an argument of another shape or dtype.

    Args:
      what: `"shape"` or `"dtype"`.
      given: the argument as the caller passed it, or its type.
    """
    expected = handle.in_avals[index]
    return kind(
        f"{argument_name(handle.arg_names, index)} has the wrong {what}: "
        f"expected {spell(expected)}, got {spell_given(given)}",
        where=f"in a call of @{handle.entry}",
        do=_remedy(what, repr(expected.dtype.name), given),
    )


def spell_given(value: Any) -> str:
    """Format the type of a value as the caller passed it, before JAX narrows it."""
    if type(value) in (list, tuple):
        array = np.asarray(value)
        kind = array.dtype.name.rstrip("0123456789")
        return f"{kind}[{','.join(map(str, array.shape))}] in a {type(value).__name__}"
    if not hasattr(value, "dtype"):
        return f"a Python {type(value).__name__}"
    of = " of NumPy" if isinstance(value, np.ndarray | np.generic) else ""
    return f"{spell(value)}{of}"


def no_array(handle: HasSignature, index: int, aval: Any, expected: Any) -> ArgumentError:
    """Return the error for an argument that is no array of numbers.

    Args:
      aval: the value, or its type where that is user-defined (jax.experimental.hijax).
    """
    return ArgumentError(
        f"{argument_name(handle.arg_names, index)} is no array: "
        f"expected {spell(expected)}, got {type(aval).__name__}",
        where=f"in a call of @{handle.entry}",
        do="make an array of it first",
    )


def _remedy(what: str, dtype: str, given: Any) -> str:
    if what == "shape":
        return "pass an array of the expected shape, or trace the program for this one"
    is_array = hasattr(given, "dtype")
    return f"convert it: {f'x.astype({dtype})' if is_array else f'numpy.asarray(x, {dtype})'}"


def argument_name(names: Sequence[str] | None, index: int) -> str:
    """Return an argument's name for messages: its position, and its path if that is known."""
    if names is None or index >= len(names):
        return f"argument {index}"
    return f"argument {index} ({names[index]})"


def _listed(handle: HasSignature) -> str:
    names = handle.arg_names or tuple(str(i) for i in range(len(handle.in_avals)))
    pairs = [f"{n}: {spell(a)}" for n, a in zip(names, handle.in_avals, strict=False)]
    shown = pairs if len(pairs) <= 8 else [*pairs[:8], f"… {len(pairs) - 8} more"]
    return ", ".join(shown) or "none"


def spell(aval: Any) -> str:
    """Format a type for messages, such as `float32[8,128]`."""
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


def to_arrays(signature: HasSignature, leaves: Sequence[Any]) -> list[np.ndarray]:
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


def _convert(signature: HasSignature, index: int, value: Any, expected: Any) -> Any:
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
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # lists of other lengths, or values that JAX traces
        raise no_array(signature, index, value, expected) from None
    if type(value) in (list, tuple) and array.dtype.kind not in "biufcV":
        raise no_array(signature, index, value, expected)
    if array.dtype.kind not in NUMBERS:
        return array
    dtype = promoted(np.dtype(NUMBERS[array.dtype.kind]), expected.dtype)
    return _checked(signature, index, array, dtype)


def promoted(own: np.dtype, expected: np.dtype) -> np.dtype:
    """Return the dtype that JAX's promotion gives a Python number whose parameter has `expected`.

    Floats give way to narrower ones. An integer might not fit, so it keeps its own dtype there.
    """
    # ml_dtypes has kind "V"; each of them is a float here, or a small integer that takes no number
    inexact = expected.kind in "fc" or (expected.kind == "V" and "float" in expected.name)
    fits = expected.kind == "c" or (inexact and own.kind != "c")
    return expected if fits or (own.kind == "i" and expected == np.int64) else own


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
