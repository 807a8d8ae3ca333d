"""Dimensions that are symbols: the types that they are in, and these for given sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax._src import core as _core

from pullback._jax import ir

SIZES = "pullback.sizes"
"""The attribute of a function with the shapes of its arguments and results, as text.

It also tells functions apart that are equal but for what the dimensions stand for."""


def shape_of(text: str, values: Mapping[str, int]) -> tuple[int, ...]:
    """The shape that a text such as `2*b + 1, 4` means for sizes of the symbols."""
    return shape_in(jax.export.symbolic_shape(text) if text else (), values)


def shape_in(shape: Any, values: Mapping[str, int]) -> tuple[int, ...]:
    """A shape for sizes of the symbols in it."""
    return tuple(map(int, _core.evaluate_shape(shape, tuple(values), *values.values())))


def sized(values: Mapping[str, int], aval: Any) -> jax.ShapeDtypeStruct:
    """A type for sizes of the symbols in it."""
    return jax.ShapeDtypeStruct(shape_in(aval.shape, values), aval.dtype)


def mark(function: Any, in_avals: Sequence[Any], out_avals: Sequence[Any]) -> None:
    """Writes down the shapes of the arguments and results of a function."""
    mark_again(function, [list(map(_text, avals)) for avals in (in_avals, out_avals)], "")


def mark_again(function: Any, sides: Sequence[Sequence[str]] | None, apart: str) -> None:
    """Writes down what `take` has found of a function; if nothing, it is like no other."""
    if sides is None:
        mark_apart(function, apart)
        return
    texts = [ir.ArrayAttr.get(list(map(ir.StringAttr.get, side))) for side in sides]
    function.attributes[SIZES] = ir.ArrayAttr.get(texts)


def mark_apart(function: Any, apart: str) -> None:
    """Tells a function without such shapes from those of other functions."""
    if SIZES not in function.attributes:
        function.attributes[SIZES] = ir.StringAttr.get(apart)


def take(functions: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """The shapes of arguments and results of each function that says them; it says no more then."""
    found = {}
    for name, function in functions.items():
        if SIZES in function.attributes:
            marked = function.attributes[SIZES]
            if isinstance(marked, ir.ArrayAttr):
                found[name] = [[text.value for text in side] for side in marked]
            del function.attributes[SIZES]
    return found


def _text(aval: Any) -> str:
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        aval = _core.physical_aval(aval)
    return ", ".join(map(str, aval.shape))
