"""Results of a `custom_vjp` function that all items of a batch share, in a rule that JAX batches.

The cotangent of such a result is that of all items together. JAX gives the whole of it to the rule
of each item, and sums what they return: up to 0.11 that is too much, and JAX 0.12 refuses.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax._src import linear_util as _linear_util

from pullback._jax.objects import closed_over, is_wrapped_function


def counted_once(equation: Any) -> Any:
    """A call of such a function, with a rule that gives these cotangents to the first item."""
    bwd = equation.params["bwd"]
    new = _of_rule(bwd)
    return equation if new is bwd else equation.replace(params={**equation.params, "bwd": new})


def _of_rule(bwd: Any) -> Any:
    if not is_wrapped_function(bwd):
        return bwd
    function = _of_function(bwd.f)
    if function is bwd.f:
        return bwd
    new = _linear_util.wrap_init(function, dict(bwd.params), debug_info=bwd.debug_info)
    for transform, arguments in reversed(bwd.transforms):
        new = new.wrap(transform, arguments, None)
    return new


def _of_function(function: Any) -> Any:
    """The same of what JAX makes of a rule: its batch, or the rule without dead code."""
    batches = closed_over(function, "out_dim_dests") is not None
    if not batches and closed_over(function, "used_outs") is None:
        return function
    old = closed_over(function, "bwd")
    new = _of_rule(old)
    if batches:
        return _batched(function, new)
    return function if new is old else _with(function, bwd=new)


def _batched(function: Any, bwd: Any) -> Callable[..., Any]:
    axis_of, axis = closed_over(function, "in_dims"), closed_over(function, "axis_data")
    trees = closed_over(axis_of, "out_trees")
    if trees is None or axis.explicit_mesh_axis or not axis.size:
        return function

    def of_items(*values: Any) -> Any:
        given, axes, count = list(values), list(axis_of()), len(trees()[2])
        for i, value in enumerate(values[count:], count):
            if axes[i] is None and not isinstance(value, jax.custom_derivatives.SymbolicZero):
                given[i], axes[i] = _of_the_first(value, axis.size), 0
        return _with(function, bwd=bwd, in_dims=axes)(*given)

    return of_items


def _of_the_first(ct: Any, size: int) -> Any:
    """The cotangents of so many items, zero but for the first one."""
    if jax.typeof(ct).dtype == jax.dtypes.float0:
        return np.zeros((size, *ct.shape), jax.dtypes.float0)
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
