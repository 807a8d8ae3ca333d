"""What differs between the items of a batch by their index along a named axis, not by an argument.

A batched jaxpr has only an iota there, as the function may have for itself. So what JAX makes for
each item where the items share all operands is marked with the axis, in its name stack: in all that
is traced while pullback is imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jax._src import source_info_util as _source_info
from jax._src.interpreters import batching as _batching
from jax._src.lax import parallel as _parallel

from pullback._jax import jaxprs

_BY_INDEX = (_parallel.axis_index_p, _parallel.reduce_scatter_p)
"""The collectives that give each item another value of one that they share, or of none."""


def install() -> None:
    """Makes JAX mark them."""
    batchers = _batching.fancy_primitive_batchers
    batchers.update({each: _marking(batchers[each]) for each in _BY_INDEX})


def _marking(batch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(batch)
    def marked(axis: Any, operands: Any, dims: Any, axis_name: Any, **params: Any) -> Any:
        if axis.name not in (axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)):
            return batch(axis, operands, dims, axis_name=axis_name, **params)
        with _source_info.extend_name_stack(_mark(axis)):
            return batch(axis, operands, dims, axis_name=axis_name, **params)

    return marked


def _mark(axis: Any) -> str:
    """A function may have an axis of the same name for itself, mostly of another size."""
    return f"pullback: along {axis.name} of {axis.size}"


def depending(closed: Any, axis: Any) -> list[bool]:
    """Which results of a batched jaxpr depend on the index of an item along an axis.

    Of a loop or a branch in which one is made, all results do.
    """
    return _depending(closed, [False] * len(jaxprs.inputs_of(closed)), _mark(axis))


def _depending(closed: Any, arguments: Sequence[bool], mark: str) -> list[bool]:
    jaxpr = jaxprs.opened(closed)
    moving = {var for var, moves in zip(jaxpr.invars, arguments, strict=True) if moves}

    def moves(atom: Any) -> bool:
        return not isinstance(atom, jaxprs.Literal) and atom in moving

    for equation in jaxpr.eqns:
        given = [moves(atom) for atom in equation.invars]
        if equation.primitive.name == jaxprs.JITTED:
            found = _depending(equation.params["jaxpr"], given, mark)
            moving.update(var for var, does in zip(equation.outvars, found, strict=True) if does)
        elif any(given) or _is_marked(equation, mark):
            moving.update(equation.outvars)
    return [moves(atom) for atom in jaxpr.outvars]


def _is_marked(equation: Any, mark: str) -> bool:
    """Whether an equation has the mark, or one in its bodies."""
    inside = (each for _, body in jaxprs.bodies_of(equation) for each in jaxprs.equations_in(body))
    return any(
        getattr(scope, "name", None) == mark
        for each in (equation, *inside)
        for scope in each.source_info.name_stack.stack
    )
