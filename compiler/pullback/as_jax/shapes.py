"""Ops that make, move and choose elements of arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import pullback_runtime
from pullback._jax import ir
from pullback.as_jax.indexing import widened
from pullback.as_jax.table import Array, OpInJax, evaluates
from pullback.ir import build


@evaluates("stablehlo.constant", "chlo.constant")
def _constant(op: OpInJax) -> Array:
    return jnp.asarray(_numbers(op), op.dtype)


def _numbers(op: OpInJax) -> Any:
    """Return the value of a constant."""
    try:
        value = ir.DenseElementsAttr(op.attributes["value"])
    except TypeError:  # the bindings cannot hold complex numbers
        return run_alone(op.operation)
    if value.is_splat and isinstance(found := value.get_splat_value(), ir.FloatAttr):
        return np.full(op.shape, found.value, op.dtype)
    array = np.array(value)
    if array.dtype != op.dtype:  # nor read all small types
        return run_alone(op.operation)
    return np.broadcast_to(array, op.shape)


def run_alone(operation: Any) -> Any:
    """Return the result of an op without operands, by the reference interpreter."""
    type = operation.results[0].type
    text = operation.get_asm(use_local_scope=True, assume_verified=True).partition(" = ")[2]
    module = f"func.func public @main() -> {type} {{ %0 = {text} return %0 : {type} }}"
    return pullback_runtime.run_interpreted(module)[0]


@evaluates("stablehlo.iota")
def _iota(op: OpInJax) -> Array:
    return lax.broadcasted_iota(op.dtype, op.shape, op.number("iota_dimension"))


@evaluates("chlo.constant_like")
def _constant_like(op: OpInJax, x: Array) -> Array:
    return lax.full_like(x, op.attributes["value"].value)


@evaluates("stablehlo.broadcast_in_dim")
def _broadcast_in_dim(op: OpInJax, x: Array) -> Array:
    """Broadcast to dimensions that JAX, unlike StableHLO, wants in ascending order."""
    dims = op.integers("broadcast_dimensions")
    order = sorted(range(len(dims)), key=dims.__getitem__)
    if list(dims) != sorted(dims):
        x = lax.transpose(x, order)
    return lax.broadcast_in_dim(x, op.shape, sorted(dims))


@evaluates("stablehlo.broadcast")
def _broadcast(op: OpInJax, x: Array) -> Array:
    return lax.broadcast(x, op.integers("broadcast_sizes"))


@evaluates("stablehlo.reshape")
def _reshape(op: OpInJax, x: Array) -> Array:
    return lax.reshape(x, op.shape)


@evaluates("stablehlo.transpose")
def _transpose(op: OpInJax, x: Array) -> Array:
    return lax.transpose(x, op.integers("permutation"))


@evaluates("stablehlo.reverse")
def _reverse(op: OpInJax, x: Array) -> Array:
    return lax.rev(x, op.integers("dimensions"))


@evaluates("stablehlo.concatenate")
def _concatenate(op: OpInJax, *operands: Array) -> Array:
    return lax.concatenate(operands, op.number("dimension"))


@evaluates("stablehlo.slice")
def _slice(op: OpInJax, x: Array) -> Array:
    return lax.slice(x, *map(op.integers, ("start_indices", "limit_indices", "strides")))


@evaluates("stablehlo.pad")
def _pad(op: OpInJax, x: Array, value: Array) -> Array:
    names = "edge_padding_low", "edge_padding_high", "interior_padding"
    return lax.pad(x, value, list(zip(*map(op.integers, names), strict=True)))


@evaluates("stablehlo.dynamic_slice")
def _dynamic_slice(op: OpInJax, x: Array, *starts: Array) -> Array:
    sizes = op.integers("slice_sizes")
    indices = [widened(start) for start in starts]
    return lax.dynamic_slice(x, indices, sizes, allow_negative_indices=False)


@evaluates("stablehlo.dynamic_update_slice")
def _dynamic_update_slice(op: OpInJax, x: Array, update: Array, *starts: Array) -> Array:
    if not starts:
        return update
    indices = [widened(start) for start in starts]
    return lax.dynamic_update_slice(x, update, indices, allow_negative_indices=False)


@evaluates("stablehlo.get_dimension_size")
def _get_dimension_size(op: OpInJax, x: Array) -> Array:
    return jnp.asarray(x.shape[op.number("dimension")], op.dtype)


@evaluates("stablehlo.tuple")
def _tuple(op: OpInJax, *operands: Array) -> Array:
    return operands


@evaluates("stablehlo.get_tuple_element")
def _get_tuple_element(op: OpInJax, whole: tuple[Array, ...]) -> Array:
    return whole[build.number(op, "index")]


@evaluates("stablehlo.optimization_barrier")
def _barrier(op: OpInJax, *operands: Array) -> list[Array]:
    return list(lax.optimization_barrier(operands))


@evaluates("sdy.sharding_constraint")
def _sharding_constraint(op: OpInJax, x: Array) -> Array:
    op.attributes.names.add("sharding")
    return x
