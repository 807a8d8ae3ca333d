"""Memoize what is derived from a function or a program, for as long as that lives.

JAX's own transformations trace anew at each `jax.grad(f)`; ours derive once, so that
`pb.grad(f)(x)` in a loop costs what a call of a jitted function costs.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import jax

from pullback._jax import tracing
from pullback.program.record import AnyProgram

Method = TypeVar("Method", bound=Callable[..., Any])

_DERIVED: dict[int, tuple[weakref.ref[Any], Any, dict[Hashable, Any]]] = {}
"""By `id` of a live function: a reference to it, its code then, and what was derived from it."""


def once(method: Method) -> Method:
    """Memoize, on a program, what a function makes of it for equal options."""

    @tracing.api_boundary  # errors come from deep below
    @functools.wraps(method)
    def made(program: AnyProgram, *options: Any) -> Any:
        if not has_hash(options):
            return method(program, *options)
        return program._once((method, options), lambda: method(program, *options))

    return made


def derived_once(fun: Any, key: Hashable, make: Callable[[Callable[[], Any]], Any]) -> Any:
    """Return `make(get)`, memoized per function and key; `get()` returns the function.

    What is made must not hold the function itself, which would then never die: only `get`.
    Functions that are equal, such as two bound methods of one object, are told apart: each has a
    life of its own.
    """
    if isinstance(fun, AnyProgram):
        return fun._once(key, lambda: make(weakref.ref(fun)))
    known = _known_of(fun)
    if known is None:
        return make(lambda: fun)
    if key not in known:
        known[key] = make(weakref.ref(fun))
    return known[key]


def jitted(function: Callable[..., Any], name: str, get: Callable[[], Any]) -> Any:
    """Jit a function, and name it in JAX's messages after what it is of, such as `grad(loss)`."""
    of = get()
    function.__name__ = name
    function.__qualname__ = f"{name}({getattr(of, '__name__', type(of).__name__)})"
    return jax.jit(function)


def has_hash(value: Any) -> bool:
    """Return True if a value can be hashed, and so be a key."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _known_of(fun: Any) -> dict[Hashable, Any] | None:
    """Return what was derived from a function, by key; None if it has no hash or weak references.

    An object without a hash may change. The entries of a function start anew if its code was
    replaced, as a notebook does that loads a module again (`%autoreload`).
    """
    number, code = id(fun), fun.__code__ if isinstance(fun, types.FunctionType) else None
    try:
        hash(fun)
        found = _DERIVED.get(number)
        if found is None or found[0]() is not fun or found[1] is not code:
            reference = weakref.ref(fun, lambda dead: _forget(number, dead))
            found = _DERIVED[number] = reference, code, {}
    except TypeError:
        return None
    return found[2]


def _forget(number: int, dead: weakref.ref[Any]) -> None:
    """Drop the entries of a dead function, unless a new object has taken its `id` already."""
    if number in _DERIVED and _DERIVED[number][0] is dead:
        del _DERIVED[number]


@jax.tree_util.register_static
class Ticket:
    """Stands among the results of a jitted function for an object that is not an array."""


def staged(function: Callable[..., Any], name: str, get: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function that runs once for arguments of the same types and settings, with tracers.

    What it returns is not an array, and is kept as long as the function lives. JAX keeps the tree
    structures of results for longer; an object in them would stay alive with them: for a map of
    cotangents that is a program, and everything compiled from it.
    """
    kept: weakref.WeakKeyDictionary[Ticket, Any] = weakref.WeakKeyDictionary()

    def leave(*args: Any) -> Ticket:
        ticket = Ticket()
        kept[ticket] = function(*args)
        return ticket

    of_types = jitted(leave, name, get)
    return lambda *args: kept[of_types.eval_shape(*args)]
