"""Reductions, of whole dimensions and of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback._jax import windows
from pullback.as_jax.shapes import run_alone
from pullback.as_jax.steps import steps_in_jax, steps_of
from pullback.as_jax.table import Array, Flat, OpInJax, evaluates
from pullback.ir import build
from pullback.rules.body_patterns import applied, body_name


class Monoid(NamedTuple):
    """An op by which JAX has a reduction with a derivative."""

    combine: Callable[..., Array]
    reduce: Callable[..., Array]
    neutral: Callable[[np.dtype], Any]


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if jnp.issubdtype(dtype, jnp.inexact) else _limits(dtype)[0]


def _highest(dtype: np.dtype) -> Any:
    return np.inf if jnp.issubdtype(dtype, jnp.inexact) else _limits(dtype)[1]


def _limits(dtype: np.dtype) -> tuple[Any, Any]:
    return (False, True) if dtype.kind == "b" else (jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)


_NUMBERS = {
    "stablehlo.add": Monoid(lax.add, lax.reduce_sum, lambda dtype: 0),
    "stablehlo.multiply": Monoid(lax.mul, lax.reduce_prod, lambda dtype: 1),
    "stablehlo.minimum": Monoid(lax.min, lax.reduce_min, _highest),
    "stablehlo.maximum": Monoid(lax.max, lax.reduce_max, _lowest),
    "stablehlo.and": Monoid(
        lax.bitwise_and, lax.reduce_and, lambda dtype: np.invert(np.zeros((), dtype))
    ),
    "stablehlo.or": Monoid(lax.bitwise_or, lax.reduce_or, lambda dtype: 0),
    "stablehlo.xor": Monoid(lax.bitwise_xor, lax.reduce_xor, lambda dtype: 0),
}
_BOOLS = {
    **_NUMBERS,
    "stablehlo.add": _NUMBERS["stablehlo.or"],
    "stablehlo.multiply": _NUMBERS["stablehlo.and"],
}


def _known(op: OpInJax) -> dict[str, Monoid]:
    return _BOOLS if op.dtype.kind == "b" else _NUMBERS


def _monoid(op: OpInJax, region: int = 0) -> Monoid | None:
    """Return what a region combines its two arguments by; None if it is something else."""
    return _known(op).get(body_name(op.operation.regions[region]))


def _is_neutral(v: Any, monoid: Monoid, dtype: np.dtype) -> bool:
    """Return True if a value of the module is a constant that the monoid leaves out."""
    neutral = monoid.neutral(dtype)
    if build.is_result_of(v, "stablehlo.broadcast_in_dim"):
        v = v.owner.operands[0]
    if dtype.kind == "c" and build.is_constant(v):  # whose elements the bindings cannot read
        return bool(np.all(run_alone(v.owner.operation) == neutral))
    number = build.one_number(v)
    return number is not None and bool(number == neutral)


@evaluates("stablehlo.reduce")
def _reduce(op: OpInJax, *operands: Array) -> list[Array]:
    count = len(operands) // 2
    dims = op.integers("dimensions")
    arrays = [lax.convert_element_type(x, d) for x, d in zip(operands, op.dtypes, strict=False)]
    inits = [lax.convert_element_type(x, a.dtype) for x, a in zip(operands[count:], arrays)]
    monoid = _monoid(op) if count == 1 else None
    choose = _chooses(op, dims) if count == 2 else None
    if choose is not None:
        return _chosen(arrays[0], choose(arrays[0], dims[0], op.dtypes[1]), dims[0])
    if monoid is None:
        return _by_region(op, arrays, inits, dims)
    found = monoid.reduce(arrays[0], axes=dims)
    if _is_neutral(op.operands[1], monoid, found.dtype):
        return [found]
    return [monoid.combine(lax.broadcast(inits[0], found.shape), found)]


def _chooses(op: OpInJax, dims: Sequence[int]) -> Callable[..., Array] | None:
    """Return `argmax` or `argmin` if a reduction is what JAX writes for it, over one dimension."""
    numbers = op.operands[1]
    if len(dims) != 1 or not build.is_result_of(numbers, "stablehlo.iota"):
        return None
    if build.number(numbers.owner, "iota_dimension") != dims[0]:
        return None
    found = steps_of(op.operation.regions[0].blocks[0])
    dtypes, index = (op.dtype.name,), op.dtypes[1].name
    known = (lax.argmax, lax.argmin)
    same = (k for k in known if steps_in_jax(_choosing, op.name, dtypes, k, index) == found)
    choose = next(same, None)
    worst = {lax.argmax: _lowest, lax.argmin: _highest}
    if choose is None or build.one_number(op.operands[2]) != worst[choose](op.dtype):
        return None
    return choose if build.one_number(op.operands[3]) == 0 else None


def _choosing(choose: Callable[..., Array], index: str) -> Callable[[Array], Array]:
    return lambda x: choose(x, 0, index)


def _chosen(x: Array, index: Array, dim: int) -> list[Array]:
    """Return the elements at these indices along a dimension, and the indices."""
    found = jnp.take_along_axis(x, jnp.expand_dims(index, dim), dim, mode="clip")
    return [jnp.squeeze(found, dim), index]


def _by_region(
    op: OpInJax, arrays: list[Array], inits: list[Array], dims: Sequence[int]
) -> list[Array]:
    """Reduce by a body of the program's own: neighbours in pairs, in the order of the elements.

    JAX's own reduction by such a body has derivatives of some bodies only, and wrong ones where the
    body does not commute.
    """
    rest = [d for d in range(arrays[0].ndim) if d not in dims]
    shape = tuple(arrays[0].shape[d] for d in rest)
    count = math.prod(arrays[0].shape[d] for d in dims)
    flat = [lax.reshape(lax.transpose(x, (*sorted(dims), *rest)), (count, *shape)) for x in arrays]
    step = _on_arrays(op.regions[0], len(shape))
    found = [lax.broadcast(init, shape) for init in inits]
    return step(*found, *_in_pairs(jax.vmap(step), flat)) if count else found


def _on_arrays(step: Flat, rank: int) -> Flat:
    """Return a function of scalars as a function of arrays, element by element."""
    for _ in range(rank):
        step = jax.vmap(step)
    return step


def _in_pairs(step: Flat, arrays: list[Array]) -> list[Array]:
    """Combine the items along the first dimension, each with its neighbour, until one is left."""
    while (count := arrays[0].shape[0]) > 1:
        left = [x[0 : count - 1 : 2] for x in arrays]
        found = step(*left, *(x[1::2] for x in arrays))
        last = [x[count - count % 2 :] for x in arrays]
        arrays = [lax.concatenate(pair, 0) for pair in zip(found, last, strict=True)]
    return [x[0] for x in arrays]


@evaluates("stablehlo.reduce_window")
def _reduce_window(op: OpInJax, *operands: Array) -> list[Array]:
    count = len(operands) // 2
    rank = operands[0].ndim
    arrays = [lax.convert_element_type(x, d) for x, d in zip(operands, op.dtypes, strict=False)]
    inits = [lax.convert_element_type(x, a.dtype) for x, a in zip(operands[count:], arrays)]
    names = "window_strides", "base_dilations", "window_dilations"
    strides, base, window = (build.integers_or_ones(op.attributes, n, rank) for n in names)
    sizes, padding = op.integers("window_dimensions"), build.paddings(op.attributes, rank)
    how = sizes, strides, padding, base, window
    if not rank:  # XLA ends the process at JAX's derivative of it
        return op.regions[0](*inits, *arrays)
    monoid = _monoid(op) if count == 1 else None
    if monoid is not None and _is_neutral(op.operands[1], monoid, arrays[0].dtype):
        value = np.asarray(monoid.neutral(arrays[0].dtype), arrays[0].dtype)
        return [lax.reduce_window(arrays[0], value, monoid.combine, *how)]

    def combine(x: Sequence[Array], y: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(op.regions[0](*x, *y))

    return list(lax.reduce_window(tuple(arrays), tuple(inits), combine, *how))


@evaluates("stablehlo.select_and_scatter")
def _select_and_scatter(op: OpInJax, x: Array, source: Array, init: Array) -> Array:
    rank = x.ndim
    strides = build.integers_or_ones(op.attributes, "window_strides", rank)
    sizes = build.integers_or_ones(op.attributes, "window_dimensions", rank)
    how = sizes, strides, build.paddings(op.attributes, rank)
    added = _known(op)["stablehlo.add"]
    chosen = comparison(op.operation.regions[0].blocks[0])
    if _monoid(op, 1) is added and chosen in ("GE", "LE"):
        found = windows.select_and_scatter_add(source, x, chosen, *how)
        neutral = _is_neutral(op.operands[2], added, found.dtype)
        return found if neutral else added.combine(lax.broadcast(init, found.shape), found)
    raise op.refusal("with bodies other than GE or LE, and a sum")


def comparison(block: Any) -> str:
    """Return the direction in which a block compares its first two arguments; '' if it does not."""
    found = applied(block)
    if found is None or found.op is None or found.op.name != "stablehlo.compare":
        return ""
    if found.operands != list(block.arguments)[:2]:
        return ""
    return build.enumerator(found.op.attributes["comparison_direction"])
