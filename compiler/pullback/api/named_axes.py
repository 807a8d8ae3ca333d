"""`reduce_axes`: gradients that are totals over the named axes of `jax.vmap`s around the call.

Inside of a vmap, the gradient by a value that differs between items is of one item, and so is that
by a value which all items share. With `reduce_axes` the latter is the sum of all items' gradients.
Whether a value differs along an axis is known when the axis is mapped, so that is when a
primitive decides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from pullback._jax import named_axes, primitives
from pullback.errors import ArgumentMismatchError
from pullback.program.argument_leaves import is_float0
from pullback.program.memo import has_hash


def names_of(reduce_axes: Any) -> tuple[Any, ...]:
    """Return the axes of an option `reduce_axes`, which may be one name.

    Raises:
      ArgumentMismatchError: a name is not that of an axis of an enclosing vmap.
    """
    one = isinstance(reduce_axes, str) or not isinstance(reduce_axes, Sequence)
    names = (reduce_axes,) if one else tuple(reduce_axes)
    for name in names:
        if not has_hash(name) or not named_axes.is_axis_of_vmap(name):
            raise ArgumentMismatchError(
                f"reduce_axes names {name!r}, which is no axis of a vmap around the call",
                where=f"reduce_axes={reduce_axes!r}",
                do="name the axis where it is mapped, jax.vmap(…, axis_name=…); "
                "in a shard_map, use jax.lax.psum",
            )
    return names


def totals(gradients: Any, primals: Any, names: tuple[Any, ...]) -> Any:
    """Sum each gradient over those of the axes along which its primal value does not differ."""

    def total(primal: Any, gradient: Any) -> Any:
        return gradient if is_float0(gradient) else _total.bind(gradient, primal, axes=names)

    return jax.tree.map(total, primals, gradients) if names else gradients


def _batch(axis: Any, values: Any, dims: Any, *, axes: tuple[Any, ...]) -> tuple[Any, Any]:
    (gradient, primal), (dim, of_primal) = values, dims
    if axis.name in axes and of_primal is None:
        gradient = _times(gradient, axis.size) if dim is None else gradient.sum(dim)
        dim = None
    rest = tuple(name for name in axes if name != axis.name)
    return _total.bind(gradient, primal, axes=rest) if rest else gradient, dim


def _times(gradient: Any, size: int) -> Any:
    """Multiply in 32 bits at least: a size may be infinite in fewer."""
    dtype = gradient.dtype
    wide = jax.numpy.float32 if dtype.itemsize < 4 else dtype
    return (gradient.astype(wide) * size).astype(dtype)


def _outside(axes: tuple[Any, ...]) -> ArgumentMismatchError:
    """Return the error for a map of cotangents that is used where its axis is mapped no more."""
    names = ", ".join(map(repr, axes))
    return ArgumentMismatchError(
        f"a total over the axis {names} is asked for outside of the vmap that has it",
        where="the map that pb.vjp returned with reduce_axes",
        do="call the map in the function that is mapped, and return what it gives",
    )


_total = primitives.collective("total_gradient", _batch, _outside)
