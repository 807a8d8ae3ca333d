"""Contractions, convolutions, and what JAX has for linear algebra."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from pullback._jax import stablehlo
from pullback.as_jax.table import Array, OpInJax, evaluates
from pullback.ir import build
from pullback_runtime.ir._dtypes import element_dtype


def _precision(op: OpInJax) -> Any:
    """Return the precision of each operand, or the algorithm of a product."""
    words = ["DEFAULT"] * 2
    if "precision_config" in op.attributes:
        words = [build.enumerator(each) for each in op.attributes["precision_config"]] or words
    if "algorithm" not in op.attributes:
        return tuple(getattr(lax.Precision, word) for word in words)
    if set(words) != {"DEFAULT"}:
        raise op.refusal("with both an algorithm and a precision")
    given = stablehlo.DotAlgorithm(op.attributes["algorithm"])
    types = (given.lhs_precision_type, given.rhs_precision_type, given.accumulation_type)
    return lax.DotAlgorithm(
        *(element_dtype(t, "an algorithm") for t in types),
        given.lhs_component_count,
        given.rhs_component_count,
        given.num_primitive_operations,
        given.allow_imprecise_accumulation,
    )


@evaluates("stablehlo.dot_general")
def _dot_general(op: OpInJax, x: Array, y: Array) -> Array:
    dims = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    contracted = dims.lhs_contracting_dimensions, dims.rhs_contracting_dimensions
    batch = dims.lhs_batching_dimensions, dims.rhs_batching_dimensions
    return lax.dot_general(
        x, y, (contracted, batch), precision=_precision(op), preferred_element_type=op.dtype
    )


@evaluates("stablehlo.dot")
def _dot(op: OpInJax, x: Array, y: Array) -> Array:
    dims = (((x.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(x, y, dims, precision=_precision(op), preferred_element_type=op.dtype)


@evaluates("stablehlo.convolution")
def _convolution(op: OpInJax, x: Array, kernel: Array) -> Array:
    d = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    spatial = list(d.kernel_spatial_dimensions)
    count = len(spatial)
    if "window_reversal" in op.attributes:
        flips = [bool(each) for each in op.attributes["window_reversal"]]
        kernel = lax.rev(kernel, [dim for dim, f in zip(spatial, flips, strict=True) if f])
    numbers = lax.ConvDimensionNumbers(
        (d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions),
        (d.kernel_output_feature_dimension, d.kernel_input_feature_dimension, *spatial),
        (d.output_batch_dimension, d.output_feature_dimension, *d.output_spatial_dimensions),
    )
    return lax.conv_general_dilated(
        x,
        kernel,
        build.integers_or_ones(op.attributes, "window_strides", count),
        build.paddings(op.attributes, count),
        build.integers_or_ones(op.attributes, "lhs_dilation", count),
        build.integers_or_ones(op.attributes, "rhs_dilation", count),
        numbers,
        op.number("feature_group_count"),
        op.number("batch_group_count"),
        precision=_precision(op),
        preferred_element_type=op.dtype,
    )


@evaluates("stablehlo.cholesky")
def _cholesky(op: OpInJax, x: Array) -> Array:
    if op.flag("lower"):
        return lax.linalg.cholesky(x, symmetrize_input=False)
    return _adjoint(lax.linalg.cholesky(_adjoint(x), symmetrize_input=False))


def _adjoint(x: Array) -> Array:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


@evaluates("stablehlo.triangular_solve")
def _triangular_solve(op: OpInJax, a: Array, b: Array) -> Array:
    how = op.word("transpose_a")
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=op.flag("left_side"),
        lower=op.flag("lower"),
        unit_diagonal=op.flag("unit_diagonal"),
        transpose_a=how in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=how == "ADJOINT",
    )


@evaluates("stablehlo.fft")
def _fft(op: OpInJax, x: Array) -> Array:
    return lax.fft(x, op.word("fft_type"), op.integers("fft_length"))
