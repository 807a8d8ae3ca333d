"""Results of a `custom_vjp` function that all items of a batch share, in a rule that JAX batches.

The cotangent of such a result is that of all items together. JAX gives the whole of it to the rule
of each item, and sums what they return for arguments that the items share, too: up to 0.11 that is
too much where the result does not depend on the items, and JAX 0.12 refuses. There, one item is
given it. A result that does depend on them, by a collective, has a part in the rule of each: it is
given the whole cotangent, so a collective of the rule itself would count that once for each item.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import linear_util as _linear_util

from pullback._jax import derivatives, item_indices, jaxprs, named_axes
from pullback._jax.objects import closed_over, has_name, is_wrapped_function

Dests = Sequence[int | None]
"""Where the items are in the cotangents of each argument; None for one that they share."""

OfItems = Callable[[Dests, Any], Sequence[bool]]
"""Which results depend on the items along a named axis."""


class CountedForEachError(Exception):
    """A rule has a collective of a cotangent that all items of its axis share."""

    def __init__(self, equation: Any, axis: Any) -> None:
        super().__init__(f"{jaxprs.name_of(equation)} along {axis!r}")
        self.equation, self.axis = equation, axis


def counted_once(equation: Any) -> Any:
    """A call of such a function, by whose rule what items share has these cotangents once."""
    bwd, function = equation.params["bwd"], equation.params["call_jaxpr"]

    def of_items(dests: Dests, axis: Any) -> Sequence[bool]:
        closed_over_first = [False] * (len(function.in_avals) - len(dests))
        by_value = jaxprs.depending(function, closed_over_first + [d is not None for d in dests])
        return [*map(operator.or_, by_value, item_indices.depending(function, axis))]

    new = _of_rule(bwd, of_items)
    return equation if new is bwd else equation.replace(params={**equation.params, "bwd": new})


def _of_rule(bwd: Any, of_items: OfItems) -> Any:
    if not is_wrapped_function(bwd):
        return bwd
    function = _of_function(bwd.f, of_items)
    if function is bwd.f:
        return bwd
    new = _linear_util.wrap_init(function, dict(bwd.params), debug_info=bwd.debug_info)
    for transform, arguments in reversed(bwd.transforms):
        new = new.wrap(transform, arguments, None)
    return new


def _of_function(function: Any, of_items: OfItems) -> Any:
    """The same of what JAX makes of a rule: its batch, or the rule without dead code."""
    old, used = closed_over(function, "bwd"), closed_over(function, "used_outs")
    if closed_over(function, "out_dim_dests") is not None:
        return _batched(function, _of_rule(old, of_items), of_items)
    if used is None:
        return function
    new = _of_rule(old, lambda dests, axis: _of_all(used, of_items(dests, axis)))
    return function if new is old else _with(function, bwd=new)


def _of_all(used: Sequence[bool], flags: Sequence[bool]) -> list[bool]:
    """The flags of all results, of which these are those that are used."""
    given = iter(flags)
    return [is_used and next(given) for is_used in used]


def _batched(function: Any, bwd: Any, of_items: OfItems) -> Callable[..., Any]:
    axis_of, axis = closed_over(function, "in_dims"), closed_over(function, "axis_data")
    trees = closed_over(axis_of, "out_trees")
    if trees is None or axis.explicit_mesh_axis or not axis.size:
        return function
    dests = list(closed_over(function, "out_dim_dests"))

    def rule(*values: Any) -> Any:
        axes, count = list(axis_of()), len(trees()[2])
        shared = [
            i
            for i in range(count, len(values))
            if axes[i] is None and not isinstance(values[i], jax.custom_derivatives.SymbolicZero)
        ]
        depends = of_items(dests, axis) if shared and has_name(axis) else ()
        alone = [i for i in shared if not (depends and depends[i - count])]
        _check_collectives(bwd, axis, axes, values, [i for i in shared if i not in alone])
        if not shared or None not in dests:
            return _with(function, bwd=bwd)(*values)
        each = list(values)
        for i in shared:
            each[i], axes[i] = _of_each(values[i], axis.size), 0
        of_each = _with(function, bwd=bwd, in_dims=axes)
        if not alone:
            return of_each(*each)
        once = list(each)
        for i in alone:
            once[i] = _of_the_first(values[i], axis.size)
        if dests == [None] * len(dests):
            return of_each(*once)
        return _chosen(dests, of_each(*once), of_each(*each))

    return rule


def _check_collectives(
    bwd: Any, axis: Any, axes: Sequence[int | None], values: Sequence[Any], shared: Sequence[int]
) -> None:
    """Refuses a collective along the axis of what a rule makes of cotangents that items share."""
    if not shared:
        return

    def of_one(*cts: Any) -> tuple[()]:
        one = [_first(v, dim) for v, dim in zip(values, axes, strict=True)]
        for i, ct in zip(shared, cts, strict=True):
            one[i] = ct
        bwd.call_wrapped(*one)
        return ()

    jaxpr = jaxprs.opened(jax.make_jaxpr(of_one)(*(values[i] for i in shared)))
    for equation in jaxprs.reached(jaxpr, set(jaxpr.invars)):
        if axis.name in named_axes.axes_of(equation):
            raise CountedForEachError(equation, axis.name)


def _first(value: Any, dim: int | None) -> Any:
    """What the first item is given of a value that has the items at this dimension."""
    if dim is None:
        return value
    if jax.typeof(value).dtype == jax.dtypes.float0:
        return value.take(0, dim)
    return jax.lax.index_in_dim(value, 0, dim, keepdims=False)


def _chosen(dests: Dests, shared: Any, own: Any) -> Any:
    """Cotangents of what all items share, or of what each has of its own, by the argument."""
    if derivatives.has_logs(shared):
        return _chosen(dests, shared[0], own[0]), shared[1]
    return [s if dest is None else o for dest, s, o in zip(dests, shared, own, strict=True)]


def _of_each(ct: Any, size: int) -> Any:
    """The cotangents of so many items, all the same."""
    if jax.typeof(ct).dtype == jax.dtypes.float0:
        return np.zeros((size, *ct.shape), jax.dtypes.float0)
    return jax.numpy.broadcast_to(ct, (size, *ct.shape))


def _of_the_first(ct: Any, size: int) -> Any:
    """The cotangents of so many items, zero but for the first one."""
    if jax.typeof(ct).dtype == jax.dtypes.float0:
        return _of_each(ct, size)
    return jax.numpy.pad(ct[None], [(0, size - 1), *[(0, 0)] * ct.ndim])


def _with(function: types.FunctionType, **contents: Any) -> types.FunctionType:
    """The function with other values in the place of some that it closes over."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure = tuple(
        types.CellType(contents[name]) if name in contents else cell for name, cell in cells
    )
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, None, closure
    )
