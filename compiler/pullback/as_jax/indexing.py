"""Gathers and scatters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from pullback.as_jax.table import Array, OpInJax, evaluates
from pullback.ir.indexing import Dimensions
from pullback.ir.regions import operations
from pullback.rules.body_patterns import unconstrained


def widened(index: Array) -> Array:
    """Return indices of 32 bits or more: JAX's derivatives compute with the type they are given."""
    narrow = index.dtype.itemsize < 4
    return lax.convert_element_type(index, "int32") if narrow else index


def _for_jax(op: OpInJax, indices: Array, dims: Dimensions) -> tuple[Array, Dimensions]:
    """Move the components of each index to the last dimension, where JAX has them."""
    if not dims.index_map:
        raise op.refusal("with indices that have no components")
    indices = widened(indices)
    last, at = indices.ndim - 1, dims.index_vector
    if at > last:
        return lax.expand_dims(indices, (at,)), dims
    order = [d for d in range(last + 1) if d != at]
    batching = tuple(d - (d > at) for d in dims.indices_batching)
    return (
        indices if at == last else lax.transpose(indices, (*order, at)),
        dims._replace(index_vector=last, indices_batching=batching),
    )


@evaluates("stablehlo.gather")
def _gather(op: OpInJax, x: Array, indices: Array) -> Array:
    """Gather windows, whose start indices are clamped: that is also the derivative's meaning."""
    dims = Dimensions.of_gather(op.attributes["dimension_numbers"])
    indices, dims = _for_jax(op, indices, dims)
    return lax.gather(
        x,
        indices,
        lax.GatherDimensionNumbers(
            offset_dims=dims.window,
            collapsed_slice_dims=dims.collapsed,
            start_index_map=dims.index_map,
            operand_batching_dims=dims.operand_batching,
            start_indices_batching_dims=dims.indices_batching,
        ),
        op.integers("slice_sizes"),
        indices_are_sorted=op.flag("indices_are_sorted"),
        mode=lax.GatherScatterMode.CLIP,
    )


_SCATTERS: dict[str, Callable[..., Array]] = {
    "": lax.scatter,
    "stablehlo.add": lax.scatter_add,
    "stablehlo.subtract": lax.scatter_sub,
    "stablehlo.multiply": lax.scatter_mul,
    "stablehlo.minimum": lax.scatter_min,
    "stablehlo.maximum": lax.scatter_max,
}


@evaluates("stablehlo.scatter")
def _scatter(op: OpInJax, *operands: Array) -> list[Array]:
    """Scatter into each operand by itself; windows out of bounds are dropped."""
    count = len(operands) // 2
    indices, updates = operands[count], operands[count + 1 :]
    dims = Dimensions.of_scatter(op.attributes["scatter_dimension_numbers"])
    indices, dims = _for_jax(op, indices, dims)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=dims.window,
        inserted_window_dims=dims.collapsed,
        scatter_dims_to_operand_dims=dims.index_map,
        operand_batching_dims=dims.operand_batching,
        scatter_indices_batching_dims=dims.indices_batching,
    )
    options = {
        "indices_are_sorted": op.flag("indices_are_sorted"),
        "unique_indices": op.flag("unique_indices"),
        "mode": lax.GatherScatterMode.FILL_OR_DROP,
    }
    bodies = _bodies(op, count)
    return [
        _SCATTERS[body](x, indices, update, numbers, **options)
        for body, x, update in zip(bodies, operands, updates, strict=False)
    ]


def _bodies(op: OpInJax, count: int) -> list[str]:
    """Return the op by which each operand and its update are combined; '' if it is replaced."""
    block = op.operation.regions[0].blocks[0]
    arguments = list(block.arguments)
    *_, end = operations(block)
    found = []
    for i, v in enumerate(map(unconstrained, end.operands)):
        name = _combined(v, arguments[i], arguments[count + i])
        if name not in _SCATTERS:
            raise op.refusal("with a body that is no sum, product, minimum, maximum or replacement")
        found.append(name)
    return found


def _combined(v: Any, old: Any, new: Any) -> str:
    if v == new:
        return ""
    if v == old or v in (old, new) or not hasattr(v.owner, "operands"):
        return "another argument"
    operands = list(map(unconstrained, v.owner.operands))
    name = str(v.owner.name)
    swapped = operands == [new, old] and name != "stablehlo.subtract"
    return name if operands == [old, new] or swapped else "something else"
