"""Ops that make, move and choose elements of arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import pullback_runtime
from pullback._jax import ir
from pullback.as_jax.indexing import widened
from pullback.as_jax.table import Array, OpInJax, evaluates, register
from pullback.ir import build

register(
    {
        "chlo.constant_like": lambda op, x: lax.full_like(x, op.attributes["value"].value),
        "stablehlo.broadcast": lambda op, x: lax.broadcast(x, op.integers("broadcast_sizes")),
        "stablehlo.concatenate": lambda op, *xs: lax.concatenate(xs, op.number("dimension")),
        "stablehlo.get_dimension_size": lambda op, x: jnp.asarray(
            x.shape[op.number("dimension")], op.dtype
        ),
        "stablehlo.get_tuple_element": lambda op, whole: whole[build.number(op, "index")],
        "stablehlo.iota": lambda op: lax.broadcasted_iota(
            op.dtype, op.shape, op.number("iota_dimension")
        ),
        "stablehlo.optimization_barrier": lambda op, *xs: list(lax.optimization_barrier(xs)),
        "stablehlo.reshape": lambda op, x: lax.reshape(x, op.shape),
        "stablehlo.reverse": lambda op, x: lax.rev(x, op.integers("dimensions")),
        "stablehlo.slice": lambda op, x: lax.slice(
            x, *map(op.integers, ("start_indices", "limit_indices", "strides"))
        ),
        "stablehlo.transpose": lambda op, x: lax.transpose(x, op.integers("permutation")),
        "stablehlo.tuple": lambda op, *xs: xs,
    }
)


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


@evaluates("stablehlo.broadcast_in_dim")
def _broadcast_in_dim(op: OpInJax, x: Array) -> Array:
    """Broadcast to dimensions that JAX, unlike StableHLO, wants in ascending order."""
    dims = op.integers("broadcast_dimensions")
    order = sorted(range(len(dims)), key=dims.__getitem__)
    if list(dims) != sorted(dims):
        x = lax.transpose(x, order)
    return lax.broadcast_in_dim(x, op.shape, sorted(dims))


@evaluates("stablehlo.pad")
def _pad(op: OpInJax, x: Array, value: Array) -> Array:
    names = "edge_padding_low", "edge_padding_high", "interior_padding"
    return lax.pad(x, value, list(zip(*map(op.integers, names), strict=True)))


@evaluates("stablehlo.dynamic_slice")
def _dynamic_slice(op: OpInJax, x: Array, *starts: Array) -> Array:
    indices = list(map(widened, starts))
    return lax.dynamic_slice(x, indices, op.integers("slice_sizes"), allow_negative_indices=False)


@evaluates("stablehlo.dynamic_update_slice")
def _dynamic_update_slice(op: OpInJax, x: Array, update: Array, *starts: Array) -> Array:
    if not starts:
        return update
    indices = list(map(widened, starts))
    return lax.dynamic_update_slice(x, update, indices, allow_negative_indices=False)


@evaluates("sdy.sharding_constraint")
def _sharding_constraint(op: OpInJax, x: Array) -> Array:
    op.attributes.names.add("sharding")
    return x


@evaluates("stablehlo.rng_bit_generator")
def _rng_bit_generator(op: OpInJax, state: Array) -> list[Array]:
    algorithm = getattr(lax.RandomAlgorithm, f"RNG_{op.word('rng_algorithm')}")
    shape = build.shape(op.operation.results[1])
    return list(lax.rng_bit_generator(state, shape, dtype=op.dtypes[1], algorithm=algorithm))


@evaluates("stablehlo.rng")
def _rng(op: OpInJax, a: Array, b: Array, shape: Array) -> Array:
    if op.word("rng_distribution") != "UNIFORM":
        raise op.refusal(f"of the distribution {op.word('rng_distribution')}")
    return lax.rng_uniform(a, b, op.shape)
