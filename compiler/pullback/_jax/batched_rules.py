"""Batches of functions with rules: a rule has the items where its function has them.

JAX batches the function and its rule apart, so that each may have the items along another axis of
a result: one is a loop that starts with a batch in front, the other a product that ends with it. As
long as JAX runs only one of them, it is told that one's axes. A call that is traced has those of
its function, while its rule keeps its own, so that derivatives under `jax.jit` are those of a
transpose, without an error where the array is square. Here, what a rule gives is moved to the axes
of its function as soon as these are known: for all calls that are traced while pullback is
imported, since JAX keeps what it has traced.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from jax._src import dtypes as _dtypes, linear_util as _linear_util
from jax._src.interpreters import batching as _batching


class _Aligned:
    """A primitive for functions with rules, which is bound to a rule that follows its function.

    Its operands may be NumPy's, of a batch that is closed over: JAX cannot trace these as they are.
    """

    def __init__(self, primitive: Any, axis: Any) -> None:
        self._primitive, self._axis = primitive, axis

    def bind_with_trace(self, trace: Any, *args: Any) -> Any:
        operands, *types, params = args
        operands = tuple(map(_dtypes.canonicalize_value, operands))
        function, rule, *backward = params["subfuns"]
        stores = function.stores[0], rule.stores[0]  # JAX writes there where the items are
        rule = rule.wrap(_follow, (self._axis, *stores), None)
        params = {**params, "subfuns": (function, rule, *backward)}
        return self._primitive.bind_with_trace(trace, operands, *types, params)


def _follow(rule: Callable[..., Any], axis: Any, function: Any, own: Any, *args: Any) -> list[Any]:
    """What a rule gives, at the axes of the results of the function, if that was traced before.

    A `jvp` rule gives results and tangents, and has one list of axes for both. The `fwd` of a
    `custom_vjp` gives residuals, and then the results; its `bwd` is told of these axes.
    """
    given = list(rule(*args))
    try:
        wanted = function.val
    except _linear_util.StoreException:
        return given
    axes = list(own.val)
    residuals = len(axes) - len(wanted)
    moved = [*axes[:residuals], *map(_axis_of, axes[residuals:], wanted)]
    own.reset()
    own.store(moved)
    places = zip(given, itertools.cycle(axes), itertools.cycle(moved), strict=False)
    return [_batching._matchaxis_symzeros(axis, a, b, v) for v, a, b in places]


def _axis_of(own: int | None, wanted: int | None) -> int | None:
    """Each item has what a rule gives all of them; what it gives each of them, they cannot share.

    None is the axis of what all items share.
    """
    return own if wanted is None else wanted


def install() -> None:
    """Makes JAX do so."""
    for name in ("process_custom_jvp_call", "process_custom_vjp_call"):
        process = getattr(_batching.BatchTrace, name)
        setattr(_batching.BatchTrace, name, _with_aligned(process))


def _with_aligned(process: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(process)
    def aligned(self: Any, primitive: Any, *args: Any, **params: Any) -> Any:
        return process(self, _Aligned(primitive, self.axis_data), *args, **params)

    return aligned
