"""Builders of gathers and scatters, and the correspondence between the two.

A gather and the scatter that undoes it have the same dimension numbers under different names;
`Dimensions` holds them once. Beware of the edges: a gather CLAMPS its start indices, a scatter
DROPS windows that are not wholly inside of the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback.ir import build
from pullback.ir.build import Value


class Dimensions(NamedTuple):
    """Dimension numbers of a gather, or of the scatter that undoes it."""

    window: tuple[int, ...]  # of the gathered array (the updates): the dims of one window
    collapsed: tuple[int, ...]  # of the operand: dims of size 1 that windows lack
    operand_batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    index_map: tuple[int, ...]  # operand dim of each component of an index
    index_vector: int  # the dim of the indices that holds the components

    @classmethod
    def of_gather(cls, attribute: Any) -> Dimensions:
        d = stablehlo.GatherDimensionNumbers(attribute)
        return cls(
            tuple(d.offset_dims),
            tuple(d.collapsed_slice_dims),
            tuple(d.operand_batching_dims),
            tuple(d.start_indices_batching_dims),
            tuple(d.start_index_map),
            d.index_vector_dim,
        )

    @classmethod
    def of_scatter(cls, attribute: Any) -> Dimensions:
        d = stablehlo.ScatterDimensionNumbers(attribute)
        return cls(
            tuple(d.update_window_dims),
            tuple(d.inserted_window_dims),
            tuple(d.input_batching_dims),
            tuple(d.scatter_indices_batching_dims),
            tuple(d.scattered_dims_to_operand_dims),
            d.index_vector_dim,
        )

    def gather_attribute(self) -> Any:
        return stablehlo.GatherDimensionNumbers.get(*self, context=_jax.context())

    def scatter_attribute(self) -> Any:
        return stablehlo.ScatterDimensionNumbers.get(*self, context=_jax.context())

    def batched(self, operand: bool, indices: bool) -> Dimensions:
        """Return the dimension numbers for a batch.

        Its axis is the first of the operand, of the indices, or of both, as the flags say. With
        indices that all items share, the batch axis is one more dimension of the windows.
        """
        both = (0,) if operand and indices else ()
        window = () if indices else (0,)
        return Dimensions(
            (*window, *(d + 1 for d in self.window)),
            tuple(d + operand for d in self.collapsed),
            (*both, *(d + operand for d in self.operand_batching)),
            (*both, *(d + indices for d in self.indices_batching)),
            tuple(d + operand for d in self.index_map),
            self.index_vector + indices,
        )

    def window_sizes(self, operand: Sequence[int], updates: Sequence[int]) -> tuple[int, ...]:
        """Return the size of a window along each operand dim."""
        small = {*self.collapsed, *self.operand_batching}
        sizes = iter(updates[d] for d in self.window)
        return tuple(1 if i in small else next(sizes) for i in range(len(operand)))

    def batch(self, updates: Sequence[int]) -> tuple[int, ...]:
        """Return the dims of the updates that number the windows."""
        return tuple(d for d in range(len(updates)) if d not in self.window)


def gather(
    operand: Value, indices: Value, dims: Dimensions, sizes: Sequence[int], sorted: bool = False
) -> Value:
    """Emit a gather of windows of `sizes` at clamped `indices`; zeros if they do not fit.

    A scatter may have windows that do not fit, and drops them all. An empty result needs no op.
    """
    attributes = {
        "dimension_numbers": dims.gather_attribute(),
        "slice_sizes": build.i64s(tuple(sizes)),
        "indices_are_sorted": build.truth(sorted),
    }
    shape = _gathered_shape(build.shape(indices), dims, sizes)
    type = build.with_shape(operand.type, shape)
    fits = all(n < 0 or n >= m for n, m in zip(build.shape(operand), sizes, strict=True))
    if 0 in shape or not fits:
        return build.zeros(type)
    return build.emit1("stablehlo.gather", type, [operand, indices], attributes)


def gather_batch(
    operand: Value,
    indices: Value,
    dims: Dimensions,
    sizes: Sequence[int],
    of_operands: bool,
    of_indices: bool,
    sorted: bool = False,
) -> Value:
    """Emit the gathers of all items as one gather; `dims` and `sizes` are those of one item.

    `of_operands` and `of_indices` say which of the two have a batch axis.
    """
    size = build.shape(operand)[0] if of_operands else 0
    along_batch = [min(size, 1) if of_indices else size] if of_operands else []
    dims = dims.batched(of_operands, of_indices)
    return gather(operand, indices, dims, [*along_batch, *sizes], sorted)


def _gathered_shape(
    indices: Sequence[int], dims: Dimensions, sizes: Sequence[int]
) -> tuple[int, ...]:
    small = {*dims.collapsed, *dims.operand_batching}
    window = iter(s for i, s in enumerate(sizes) if i not in small)
    batch = iter(s for i, s in enumerate(indices) if i != dims.index_vector)
    batch_rank = len(indices) - (dims.index_vector < len(indices))
    rank = batch_rank + len(dims.window)
    return tuple(next(window) if d in dims.window else next(batch) for d in range(rank))


def scatter(
    operand: Value,
    indices: Value,
    updates: Value,
    dims: Dimensions,
    body: str | Callable[[Value, Value], Value] = "stablehlo.add",
    *,
    unique: bool = False,
    sorted: bool = False,
) -> Value:
    """Combine windows of `operand` at `indices` with `updates`; drop windows outside."""
    attributes = {
        "scatter_dimension_numbers": dims.scatter_attribute(),
        "indices_are_sorted": build.truth(sorted),
        "unique_indices": build.truth(unique),
    }
    shape = build.shape(operand)
    if 0 in build.shape(updates):
        return operand
    if not dims.index_map and dims.batch(build.shape(updates)):
        whole = build.reshape(operand, (*shape, 1))
        indices, dims = _with_component(indices, len(shape), dims)
        found = scatter(whole, indices, updates, dims, body, unique=unique, sorted=sorted)
        return build.reshape(found, shape)
    sizes = dims.window_sizes(shape, build.shape(updates))
    indices = build.widened(indices, [shape[d] - sizes[d] for d in dims.index_map])
    op = build.emit(
        "stablehlo.scatter", [operand.type], [operand, indices, updates], attributes, regions=1
    )
    element = build.tensor((), build.info(operand.type).element)
    if isinstance(body, str):
        build.fill_binary(op.regions[0], body, element)
    else:
        fill(op.regions[0], [element, element], lambda a, b: [body(a, b)])
    return op.result


def _with_component(indices: Value, dimension: int, dims: Dimensions) -> tuple[Value, Dimensions]:
    """Give indices without components one: zero, into one more operand dimension of size 1.

    Of several updates at the same empty index, XLA applies the last one only.
    """
    shape = list(build.shape(indices))
    shape[dims.index_vector] = 1
    zeros = build.zeros(build.with_shape(indices.type, tuple(shape)))
    collapsed = (*dims.collapsed, dimension)
    return zeros, dims._replace(collapsed=collapsed, index_map=(dimension,))


def replace(old: Value, new: Value) -> Value:
    """Return the update: the body of a scatter that overwrites."""
    return new


def fill(region: Any, types: Sequence[Any], body: Callable[..., Sequence[Value]]) -> None:
    """Give the region one block with arguments of these types, which returns what `body` makes."""
    block = region.blocks.append(*types, arg_locs=[build.here.loc] * len(types))
    with build.inserting(ir.InsertionPoint(block)):
        build.return_(body(*block.arguments))


# ------------------------------------------------------------------------------- in bounds


def upper_bounds(
    operand: Sequence[int], dims: Dimensions, sizes: Sequence[int], index_type: Any
) -> list[int]:
    """Return the largest start index in bounds, for each component; negative if there is none.

    Raises:
      MissingRuleError: it depends on a size that is dynamic.
    """
    if any(operand[d] < 0 for d in dims.index_map):
        dims_text = "x".join("?" if n < 0 else str(n) for n in operand)
        raise build.dynamic_shape("the largest index into an array", dims_text)
    bits = build.info(index_type).bits
    unsigned = str(build.info(index_type).element).startswith("ui")
    largest = 2**bits - 1 if unsigned else 2 ** (bits - 1) - 1
    return [min(operand[d] - sizes[d], largest) for d in dims.index_map]


def clamp(indices: Value, operand: Sequence[int], dims: Dimensions, sizes: Sequence[int]) -> Value:
    """Clamp start indices as a gather does; emit nothing if they are known to be in bounds."""
    bounds = upper_bounds(operand, dims, sizes, indices.type)
    if known_inside(indices, bounds, dims):
        return indices
    upper = _along_index_vector(bounds, indices, dims)
    return build.emit1("stablehlo.clamp", indices.type, [build.zeros(indices.type), indices, upper])


def inside(
    indices: Value, operand: Sequence[int], dims: Dimensions, updates: Sequence[int]
) -> Value | None:
    """Return a predicate in the shape of `updates`: windows that a scatter keeps; None if all."""
    sizes = dims.window_sizes(operand, updates)
    bounds = upper_bounds(operand, dims, sizes, indices.type)
    if known_inside(indices, bounds, dims):
        return None
    if any(bound < 0 for bound in bounds):  # which indices without a sign could not be compared to
        return build.full(build.tensor(tuple(updates), build.boolean()), False)
    upper = _along_index_vector(bounds, indices, dims)
    each = build.and_(build.compare("GE", indices, 0), build.compare("LE", indices, upper))
    if dims.index_vector < build.rank(indices):
        each = build.reduce(each, True, (dims.index_vector,), "stablehlo.and")
    return build.broadcast_in_dim(each, updates, dims.batch(updates))


def known_inside(indices: Value, bounds: Sequence[int], dims: Dimensions) -> bool:
    """Return True if the indices are constants, all of them in bounds."""
    if not build.is_constant(indices):
        return False
    try:
        values = np.asarray(ir.DenseElementsAttr(indices.owner.attributes["value"]))
    except (TypeError, ValueError, RuntimeError):
        return False
    if values.dtype == object:  # of less than eight bits
        return False
    values = np.broadcast_to(values, build.shape(indices))
    if dims.index_vector == values.ndim:
        values = values[..., None]
    values = np.moveaxis(values, dims.index_vector, -1)
    return bool(np.all(values >= 0) and np.all(values <= np.asarray(bounds, np.int64)))


def _along_index_vector(values: Sequence[int], indices: Value, dims: Dimensions) -> Value:
    """Return a constant shaped like `indices`, with `values` along the index vector."""
    type = indices.type
    if len(set(values)) == 1:
        return build.full(type, values[0])
    listed = ", ".join(map(str, values))
    element = build.info(type).element
    vector = build.tensor((len(values),), element)
    attribute = build.attr(f"dense<[{listed}]> : {vector}")
    constant = build.emit1("stablehlo.constant", vector, (), {"value": attribute})
    return build.broadcast_in_dim(constant, build.shape(indices), (dims.index_vector,))
