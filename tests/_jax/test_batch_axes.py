"""The batch axis of a batched function, which the function for another size shows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from pullback._jax import batch_axes, jaxprs
from tests.rules import harness
from tests.rules.record import Arg

CASES = [case for case in harness.all_cases() if callable(case.function)]
OTHER = 7919  # a size that nothing has


def batched(function: Any, args: list[Any], axes: tuple[int | None, ...], size: int) -> Any:
    """The jaxpr of a function that is batched as JAX batches that of a call with a rule."""
    ruled = jax.custom_jvp(lambda *xs: jax.tree.leaves(function(*xs)))
    ruled.defjvp(lambda *_: None)
    shapes = (
        x.shape if axis is None else (*x.shape[:axis], size, *x.shape[axis:])
        for x, axis in zip(args, axes, strict=True)
    )
    types = (jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(shapes, args, strict=True))
    traced = jax.make_jaxpr(jax.vmap(ruled, axes, axis_size=size))(*types)
    (call,) = (each for each in traced.eqns if jaxprs.name_of(each) == "custom_jvp_call")
    return jaxprs.close(call.params["call_jaxpr"])


def check(function: Any, args: list[Any], axes: tuple[int | None, ...]) -> None:
    """Try as many items as some axis of an argument has elements."""
    wanted = batched(function, args, axes, OTHER).out_avals
    for size in {n for x in args for n in x.shape if n > 1}:
        closed = batched(function, args, axes, size)
        found = batch_axes.axes_of_results(closed, axes, size)
        for places, aval, other in zip(found, closed.out_avals, wanted, strict=True):
            axis = other.shape.index(OTHER) if OTHER in other.shape else None
            if places is None:  # not known: a convolution by groups, or no elements
                assert aval.size == 0 or "conv_general_dilated" in str(closed)
            else:
                assert axis in places
                assert axis is None or places <= {axis, None}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.label}")
def test_the_axis_is_that_of_any_other_number_of_items(case: Any) -> None:
    rng = np.random.default_rng(0)
    args = [x.sample(rng) if isinstance(x, Arg) else np.asarray(x) for x in case.args]
    first = [place == 0 for place in range(len(args))]
    for chosen in (first, [not each for each in first], [True] * len(args)):
        if any(chosen):
            for axes in ([0] * len(args), [x.ndim for x in args]):
                which = tuple(a if on else None for a, on in zip(axes, chosen, strict=True))
                check(case.function, args, which)


def test_an_axis_is_not_known_where_items_meet() -> None:
    def function(x):
        return x - x.sum(0), x[::-1], x.reshape(9), jax.lax.reshape(x, (9,), (1, 0))

    closed = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((3, 3), np.float32))
    leading, second = frozenset({0}), frozenset({1})
    assert batch_axes.axes_of_results(closed, [0], 3) == [None, leading, leading, None]
    assert batch_axes.axes_of_results(closed, [1], 3) == [second, second, None, leading]
