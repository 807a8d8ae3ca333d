"""Symbolic dimensions: shapes that contain them, and those shapes for given sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax._src import core as _core

from pullback._jax import ir

SIZES = "pullback.sizes"
"""Attribute of a function: the symbolic shapes of its arguments and results, as text.

It also keeps functions apart that are equal except for what their dimensions stand for.
"""


def shape_of(text: str, values: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape that a text such as `2*b + 1, 4` denotes for given sizes of the symbols."""
    return shape_in(jax.export.symbolic_shape(text) if text else (), values)


def shape_in(shape: Any, values: Mapping[str, int]) -> tuple[int, ...]:
    """Evaluate a symbolic shape for given sizes of its symbols."""
    return tuple(map(int, _core.evaluate_shape(shape, tuple(values), *values.values())))


def sized(values: Mapping[str, int], aval: Any) -> jax.ShapeDtypeStruct:
    """Return a type with its symbolic shape evaluated for given sizes of the symbols."""
    return jax.ShapeDtypeStruct(shape_in(aval.shape, values), aval.dtype)


def mark(function: Any, in_avals: Sequence[Any], out_avals: Sequence[Any]) -> None:
    """Set the attribute `SIZES` of a function to the shapes of its arguments and results."""
    mark_again(function, [list(map(_text, avals)) for avals in (in_avals, out_avals)], "")


def mark_again(function: Any, sides: Sequence[Sequence[str]] | None, apart: str) -> None:
    """Set `SIZES` to shapes found by `take`; without any, mark the function by `mark_apart`."""
    if sides is None:
        mark_apart(function, apart)
        return
    texts = [ir.ArrayAttr.get(list(map(ir.StringAttr.get, side))) for side in sides]
    function.attributes[SIZES] = ir.ArrayAttr.get(texts)


def mark_apart(function: Any, apart: str) -> None:
    """Set `SIZES` of a function without shapes to a text, so that no other function equals it."""
    if SIZES not in function.attributes:
        function.attributes[SIZES] = ir.StringAttr.get(apart)


def take(functions: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Remove `SIZES` from functions, and return the shapes that it held, by function."""
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
