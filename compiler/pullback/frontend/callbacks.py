"""Callbacks into Python and debug prints, which tie a module to this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pullback._jax import ir, jaxprs
from pullback.ir import locations

CALLBACKS = frozenset({"debug_callback", "debug_print", "io_callback", "pure_callback"})
"""Primitives whose lowering holds a Python function of this process."""

ATTRIBUTE = "pullback.not_portable"
"""Module attribute: `["debug_callback at model.py:12", …]`; a later save rejects these by name."""


def mark(module: ir.Module, jaxpr: Any) -> None:
    """Record on the module each callback into Python that the jaxpr makes, at any depth."""
    found = dict.fromkeys(callbacks_in(jaxpr))
    if not found:
        return
    attributes = module.operation.attributes
    with module.context:
        if ATTRIBUTE in attributes:
            found = dict.fromkeys([text.value for text in attributes[ATTRIBUTE]]) | found
        attributes[ATTRIBUTE] = ir.ArrayAttr.get([ir.StringAttr.get(text) for text in found])


def callbacks_in(
    jaxpr: Any, around: tuple[Any, ...] = (), seen: set[int] | None = None
) -> Iterator[str]:
    """Yield each callback into Python with its place: `debug_callback at model.py:12, in loss`.

    A library that traces a function by itself, as Equinox does for its checks, leaves no line of
    the user's in there: the place is then that of an equation around it.

    Args:
      around: the equations that hold the jaxpr, the outermost first.
      seen: jaxprs, by identity, that were visited already.
    """
    seen = set() if seen is None else seen
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    for equation in jaxpr.eqns:
        here = *around, equation
        if equation.primitive.name in CALLBACKS:
            place, own = (
                next(filter(None, map(find, reversed(here))), None)
                for find in (locations.of_equation, locations.own_of_equation)
            )
            place = locations.called_at(place or locations.UNKNOWN, own)
            yield f"{equation.primitive.name} at {place}"
        for inner in jaxprs.jaxprs_in(equation.params.values()):
            yield from callbacks_in(inner, here, seen)
