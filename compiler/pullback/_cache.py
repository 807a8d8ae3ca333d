"""What is derived from a function is kept as long as the function lives.

JAX's own transformations trace anew at each `jax.grad(f)`; ours derive once, so that
`pb.grad(f)(x)` in a loop costs what a call of a jitted function costs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

_DERIVED: weakref.WeakKeyDictionary[Any, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


def derived_once(fun: Any, key: Hashable, make: Callable[[Callable[[], Any]], Any]) -> Any:
    """`make(get)`, made once per function and key; `get()` gives the function.

    What is made must not hold the function itself, which would then never die: only `get`.
    """
    try:
        known = _DERIVED.setdefault(fun, {})
    except TypeError:  # no weak references, or no hash: nothing to tell it by
        return make(lambda: fun)
    if key not in known:
        known[key] = make(weakref.ref(fun))
    return known[key]
