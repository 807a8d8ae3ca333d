"""What is derived from a function is kept as long as the function lives.

JAX's own transformations trace anew at each `jax.grad(f)`; ours derive once, so that
`pb.grad(f)(x)` in a loop costs what a call of a jitted function costs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

_DERIVED: dict[int, tuple[weakref.ref[Any], dict[Hashable, Any]]] = {}
"""What was derived from the object with this `id`, until it dies."""


def derived_once(fun: Any, key: Hashable, make: Callable[[Callable[[], Any]], Any]) -> Any:
    """`make(get)`, made once per function and key; `get()` gives the function.

    What is made must not hold the function itself, which would then never die: only `get`.
    Functions that are equal, such as two bound methods of one object, are told apart: each has a
    life of its own.
    """
    known = _known_of(fun)
    if known is None:
        return make(lambda: fun)
    if key not in known:
        known[key] = make(weakref.ref(fun))
    return known[key]


def _known_of(fun: Any) -> dict[Hashable, Any] | None:
    """None for what has no weak references, or no hash: such an object may change."""
    number = id(fun)
    try:
        hash(fun)
        found = _DERIVED.get(number)
        if found is None or found[0]() is not fun:
            reference = weakref.ref(fun, lambda dead: _forget(number, dead))
            found = _DERIVED[number] = reference, {}
    except TypeError:
        return None
    return found[1]


def _forget(number: int, dead: weakref.ref[Any]) -> None:
    """An object of the same number may live already."""
    if number in _DERIVED and _DERIVED[number][0] is dead:
        del _DERIVED[number]
