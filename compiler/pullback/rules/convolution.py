"""Differentiate convolutions, which are linear in each operand; so are their transposes.

Source: jax/_src/lax/convolution.py, `_conv_general_dilated_transpose_lhs` and `…_rhs`, here with
window reversal as well: that is a reversed kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback import _jax
from pullback._jax import ir, stablehlo
from pullback.autodiff.batch_rules import MappedOp, batch, merged, merged_type, split
from pullback.autodiff.registry import Op, Tangents, bilinear
from pullback.ir import build
from pullback.ir.build import Value

Layout = list[int]  # batch, feature, spatial…; of a kernel: output feature, input feature, spatial…


@dataclass(frozen=True)
class ConvolutionWindow:
    """The attributes of a convolution."""

    lhs: Layout
    rhs: Layout
    out: Layout
    strides: Sequence[int]
    padding: list[tuple[int, int]]
    lhs_dilation: Sequence[int]
    rhs_dilation: Sequence[int]
    reversal: list[bool]
    feature_groups: int
    batch_groups: int


def read_window(op: Op | MappedOp) -> ConvolutionWindow:
    """Return the attributes of a convolution, with defaults filled in."""
    d = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    lhs = [d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions]
    rhs = [
        d.kernel_output_feature_dimension,
        d.kernel_input_feature_dimension,
        *d.kernel_spatial_dimensions,
    ]
    out = [d.output_batch_dimension, d.output_feature_dimension, *d.output_spatial_dimensions]
    count = len(lhs) - 2
    return ConvolutionWindow(
        lhs,
        rhs,
        out,
        strides=build.integers_or_ones(op.attributes, "window_strides", count),
        padding=build.paddings(op.attributes, count),
        lhs_dilation=build.integers_or_ones(op.attributes, "lhs_dilation", count),
        rhs_dilation=build.integers_or_ones(op.attributes, "rhs_dilation", count),
        reversal=_reversal(op, count),
        feature_groups=build.number(op, "feature_group_count"),
        batch_groups=build.number(op, "batch_group_count"),
    )


def _reversal(op: Op | MappedOp, count: int) -> list[bool]:
    if "window_reversal" not in op.attributes:
        return [False] * count
    return [bool(b) for b in ir.DenseBoolArrayAttr(op.attributes["window_reversal"])]


# -------------------------------------------------------------------------------- transposes


def transpose_lhs(op: Op, ct: Value) -> Value | None:
    """Convolve the cotangent with the reversed kernel, input and output features exchanged."""
    if _is_empty(op):
        return None
    w = read_window(op)
    kernel = build.convert(op.rhs, build.info(ct.type).element)
    groups = max(w.feature_groups, w.batch_groups)
    if groups > 1:
        kernel = _split_axis(kernel, w.rhs[0], groups)
        kernel = _merge_axis(kernel, w.rhs[0], w.rhs[1])
    turned = [d for d, r in zip(w.rhs[2:], w.reversal, strict=True) if not r]
    shape = op.shape(0)
    padding = _lhs_padding(op, w)
    features = build.shape(kernel)[w.rhs[1]]
    result = _shape_in(w.lhs, build.shape(ct)[w.out[0]], features, [shape[d] for d in w.lhs[2:]])
    transposed = replace(
        w,
        lhs=w.out,
        rhs=[w.rhs[1], w.rhs[0], *w.rhs[2:]],
        out=w.lhs,
        strides=w.lhs_dilation,
        padding=padding,
        lhs_dilation=w.strides,
        feature_groups=groups,
        batch_groups=1,
    )
    found = convolution(op, ct, _reverse(kernel, turned), transposed, result)
    if w.batch_groups > 1:
        found = _split_axis(found, w.lhs[1], w.batch_groups)
        found = _merge_axis(found, w.lhs[1], w.lhs[0])
    return build.convert(found, build.info(op.operands[0].type).element)


def transpose_rhs(op: Op, ct: Value) -> Value | None:
    """Convolve the input with the cotangent, batch and feature dimensions exchanged."""
    if _is_empty(op):
        return None
    w = read_window(op)
    lhs = build.convert(op.lhs, build.info(ct.type).element)
    transposed = replace(
        w,
        lhs=[w.lhs[1], w.lhs[0], *w.lhs[2:]],
        rhs=[w.out[1], w.out[0], *w.out[2:]],
        out=[w.rhs[1], w.rhs[0], *w.rhs[2:]],
        strides=w.rhs_dilation,
        padding=_rhs_padding(op, w),
        rhs_dilation=w.strides,
        feature_groups=w.batch_groups,
        batch_groups=w.feature_groups,
    )
    found = convolution(op, lhs, ct, transposed, op.shape(1))
    found = _reverse(found, [d for d, r in zip(w.rhs[2:], w.reversal, strict=True) if r])
    return build.convert(found, build.info(op.operands[1].type).element)


def _is_empty(op: Op) -> bool:
    """Return True if an array has no elements: XLA has no such convolution; cotangents are zero."""
    return any(0 in build.info(v.type).shape for v in (*op.operands, *op.results))


def _dilated(size: int, dilation: int) -> int:
    return 0 if size == 0 else (size - 1) * dilation + 1


def _spatial_sizes(op: Op, w: ConvolutionWindow) -> list[tuple[int, int, int]]:
    """Return the dilated sizes of input, kernel and output, per spatial dimension."""
    lhs, rhs, out = op.shape(0), op.shape(1), build.info(op.result_type).shape
    return [
        (
            _dilated(lhs[w.lhs[i + 2]], w.lhs_dilation[i]),
            _dilated(rhs[w.rhs[i + 2]], w.rhs_dilation[i]),
            _dilated(out[w.out[i + 2]], w.strides[i]),
        )
        for i in range(len(w.strides))
    ]


def _lhs_padding(op: Op, w: ConvolutionWindow) -> list[tuple[int, int]]:
    found = []
    for (lhs, rhs, out), (low, _) in zip(_spatial_sizes(op, w), w.padding, strict=True):
        before = rhs - low - 1
        found.append((before, lhs + rhs - 1 - out - before))
    return found


def _rhs_padding(op: Op, w: ConvolutionWindow) -> list[tuple[int, int]]:
    return [
        (low, out - lhs + rhs - low - 1)
        for (lhs, rhs, out), (low, _) in zip(_spatial_sizes(op, w), w.padding, strict=True)
    ]


# ---------------------------------------------------------------------------------- builders


def convolution(
    op: Op, lhs: Value, rhs: Value, w: ConvolutionWindow, shape: Sequence[int]
) -> Value:
    """Emit a convolution with the precision of `op`, and without reversing the kernel."""
    attributes = {
        "window_strides": build.i64s(tuple(w.strides)),
        "padding": build.i64_rows(w.padding),
        "lhs_dilation": build.i64s(tuple(w.lhs_dilation)),
        "rhs_dilation": build.i64s(tuple(w.rhs_dilation)),
        "dimension_numbers": _dimension_numbers(w),
        "feature_group_count": build.i64(w.feature_groups),
        "batch_group_count": build.i64(w.batch_groups),
    }
    if "precision_config" in op.attributes:
        attributes["precision_config"] = op.attributes["precision_config"]
    result = build.tensor(tuple(shape), build.info(lhs.type).element)
    return build.emit1("stablehlo.convolution", result, [lhs, rhs], attributes)


def _dimension_numbers(w: ConvolutionWindow) -> Any:
    return stablehlo.ConvDimensionNumbers.get(
        w.lhs[0], w.lhs[1], w.lhs[2:],
        w.rhs[1], w.rhs[0], w.rhs[2:],
        w.out[0], w.out[1], w.out[2:],
        ctx=_jax.context(),
    )  # fmt: skip


def _shape_in(layout: Layout, batch: int, features: int, spatial: Sequence[int]) -> list[int]:
    shape = [0] * len(layout)
    for dim, size in zip(layout, (batch, features, *spatial), strict=True):
        shape[dim] = size
    return shape


def _split_axis(x: Value, axis: int, groups: int) -> Value:
    """Reshape an axis into two: (groups, the rest)."""
    shape = list(build.shape(x))
    return build.reshape(x, [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]])


def _merge_axis(x: Value, source: int, target: int) -> Value:
    """Move an axis before axis `target` (counted without it) and merge the two."""
    shape = build.shape(x)
    order = [i for i in range(len(shape)) if i != source]
    merged = [shape[i] for i in order]
    merged[target] *= shape[source]
    order.insert(target, source)
    return build.reshape(build.permute(x, order), merged)


def _reverse(x: Value, dimensions: list[int]) -> Value:
    if not dimensions:
        return x
    attributes = {"dimensions": build.i64s(tuple(dimensions))}
    return build.emit1("stablehlo.reverse", x.type, [x], attributes)


def transpose(op: Op, cts: Tangents) -> list[Value | None]:
    (ct,), (first, second) = cts, op.active
    return [transpose_lhs(op, ct) if first else None, transpose_rhs(op, ct) if second else None]


bilinear(
    "stablehlo.convolution",
    transpose,
    reads=(
        "dimension_numbers",
        "window_strides",
        "padding",
        "lhs_dilation",
        "rhs_dilation",
        "window_reversal",
        "feature_group_count",
        "batch_group_count",
        "precision_config",
    ),
)


# --------------------------------------------------------------------------------- batches


@batch("stablehlo.convolution")
def _batch(op: MappedOp) -> Value:
    """Merge batched inputs into their batch, kernels into output features, both into groups.

    Source: jax/_src/lax/convolution.py, `_conv_general_dilated_batch_rule`.
    """
    type = op.type()
    if 0 in build.shape_of(type):
        return build.zeros(type)
    w, (lhs, rhs) = read_window(op), op.values
    feature_groups, batch_groups = w.feature_groups, w.batch_groups
    axis, groups = w.out[1], 1
    if all(op.batched):
        into = w.lhs[0] if batch_groups > 1 else w.lhs[1]
        lhs, rhs = merged(lhs, into), merged(rhs, w.rhs[0])
        if batch_groups > 1:
            batch_groups *= op.size
        else:
            feature_groups *= op.size
    elif op.batched[0]:
        lhs, axis = merged(lhs, w.lhs[0], batch_groups), w.out[0]
    else:
        groups = max(feature_groups, batch_groups)
        rhs = merged(rhs, w.rhs[0], groups)
    (found,) = op.again(
        [lhs, rhs],
        [merged_type(type, axis)],
        feature_group_count=build.i64(feature_groups),
        batch_group_count=build.i64(batch_groups),
    )
    return split(found, type, axis, groups)
