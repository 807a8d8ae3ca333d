"""`lax.reduce` with a body of the user's, as a fold that JAX can differentiate.

JAX's rule wants tangents of all arrays and of no initial value, and assumes that the body commutes
and that initial values are neutral. The fold is what StableHLO computes, whatever they are. The
body has to be associative: it is applied to a tree of neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from pullback._jax import jaxprs, tracing
from pullback._jax.reads import parameter
from pullback.ir import locations
from pullback.rules.associative import is_associative, not_associative


def as_fold(call: Any) -> Callable[..., list[jax.Array]]:
    """Return the one equation of `call` as a tree reduction that takes the initial values last."""
    (equation,) = call.eqns
    body = tracing.equations_to_function(jaxprs.close(parameter(equation, "jaxpr")))
    count = len(equation.outvars)
    if not is_associative(jax.vmap(body), [var.aval.dtype for var in equation.outvars]):
        raise not_associative("lax.reduce", locations.of_equation(equation))
    # A set: elements are reduced in the order of their indices.
    dimensions = tuple(sorted(parameter(equation, "dimensions")))

    def fold(*operands: jax.Array) -> list[jax.Array]:
        xs = [_reduced_first(x, dimensions) for x in operands[:count]]
        size, *kept = xs[0].shape
        inits = [lax.broadcast(init, kept) for init in operands[count:]]
        if size == 0:
            return inits
        elementwise = body
        for _ in kept:
            elementwise = jax.vmap(elementwise)
        while xs[0].shape[0] > 1:
            xs = _combined(jax.vmap(elementwise), xs)
        return elementwise(*inits, *[x[0] for x in xs])

    return fold


def _reduced_first(x: jax.Array, dimensions: tuple[int, ...]) -> jax.Array:
    """Merge the reduced dimensions into one leading dimension."""
    kept = [i for i in range(x.ndim) if i not in dimensions]
    size = math.prod(x.shape[i] for i in dimensions)
    x = lax.transpose(x, (*dimensions, *kept))
    return lax.reshape(x, (size, *x.shape[len(dimensions) :]))


def _combined(body: Callable[..., list[jax.Array]], xs: list[jax.Array]) -> list[jax.Array]:
    """Combine each pair of neighbours, in order, since a body need not commute."""
    even = xs[0].shape[0] // 2 * 2
    pairs = [lax.slice_in_dim(x, i, even, 2) for i in (0, 1) for x in xs]
    last = [lax.slice_in_dim(x, even, None) for x in xs]
    return [lax.concatenate(found, 0) for found in zip(body(*pairs), last, strict=True)]
