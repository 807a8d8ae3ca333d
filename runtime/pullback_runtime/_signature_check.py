"""Check a call's arguments against a signature, whichever engine runs; errors name the argument.

JAX runs the checks while it traces a call, so a call with shapes seen before pays nothing for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pullback_runtime._errors import ArgumentError


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
    handle: HasSignature, avals: Sequence[Any], given: Sequence[Any] | None = None
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
            raise mismatch(handle, index, what, aval if given is None else given[index])


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
