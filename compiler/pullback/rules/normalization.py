"""Expand batch normalization, which JAX never emits, into arithmetic, and differentiate that.

x is the operand, m and v the mean and variance of each feature over all other dimensions, which
have N elements; r = (v + epsilon)^(-1/2).
Source: the StableHLO specification, `batch_norm_training`, `batch_norm_inference`,
`batch_norm_grad`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch, merged, merged_type, split
from pullback.autodiff.registry import Op, Rule, never, register
from pullback.ir import build
from pullback.ir.build import Value, add, mul, rsqrt, square, sub
from pullback.rules.derived import expanded

Operands = Sequence[Value]


class _Features:
    """Sums over all dimensions but the feature, and broadcasts along them."""

    def __init__(self, op: Op) -> None:
        self.shape = op.shape(0)
        self.feature = build.number(op, "feature_index")
        self.epsilon = ir.FloatAttr(op.attributes["epsilon"]).value
        self.others = [d for d in range(len(self.shape)) if d != self.feature]
        self.count = math.prod(self.shape[d] for d in self.others)

    def sum(self, x: Value) -> Value:
        return build.reduce_sum(x, self.others)

    def mean(self, x: Value) -> Value:
        return build.div(self.sum(x), float(self.count))

    def spread(self, x: Value) -> Value:
        """Broadcast one value per feature to the shape of the operand."""
        return build.broadcast_in_dim(x, self.shape, (self.feature,))

    def rsqrt(self, variance: Value) -> Value:
        return rsqrt(add(variance, self.epsilon))


def training(op: Op, operands: Operands) -> list[Value]:
    """Emit y = (x - m) r scale + offset, m, v = mean((x - m)²)."""
    x, scale, offset = operands
    features = _Features(op)
    mean = features.mean(x)
    variance = features.mean(square(sub(x, features.spread(mean))))
    return [_normalize(features, x, scale, offset, mean, variance), mean, variance]


def inference(op: Op, operands: Operands) -> list[Value]:
    """Emit y = (x - m) r scale + offset, with m and v as given."""
    return [_normalize(_Features(op), *operands)]


def _normalize(
    features: _Features, x: Value, scale: Value, offset: Value, mean: Value, variance: Value
) -> Value:
    factor = features.spread(mul(features.rsqrt(variance), scale))
    return add(mul(sub(x, features.spread(mean)), factor), features.spread(offset))


def gradient(op: Op, operands: Operands) -> list[Value]:
    """Emit d_x = scale r (g - (d_offset + h d_scale) / N), d_scale = sum(g h), d_offset = sum(g).

    Here h = (x - m) r.
    """
    x, scale, mean, variance, g = operands
    features = _Features(op)
    r = features.rsqrt(variance)
    h = mul(sub(x, features.spread(mean)), features.spread(r))
    d_scale, d_offset = features.sum(mul(g, h)), features.sum(g)
    whole = add(features.spread(d_offset), mul(h, features.spread(d_scale)))
    share = build.div(whole, float(features.count))
    return [mul(features.spread(mul(scale, r)), sub(g, share)), d_scale, d_offset]


for _name, _expand in (
    ("training", training),
    ("inference", inference),
    ("grad", gradient),
):
    register(
        Rule(
            f"stablehlo.batch_norm_{_name}",
            *expanded(_expand),
            never,
            __name__,
            "normalization",
            keeps_type=True,
            expand=_expand,
        )
    )


# --------------------------------------------------------------------------------- batches


@batch(*(f"stablehlo.batch_norm_{name}" for name in ("training", "inference", "grad")))
def _batch(op: MappedOp) -> list[Value]:
    """Merge the batch axis into the feature axis: each feature of each item is a feature."""
    feature = build.number(op, "feature_index")

    def axis(dims: Sequence[int]) -> int:
        return feature if len(dims) > 1 else 0

    dims = [axis(build.shape_of(t)) for t in op.results]
    operands = [merged(op.operand(i), axis(op.shape(i))) for i in range(len(op.values))]
    pairs = list(zip(op.types(), dims, strict=True))
    found = op.again(operands, [merged_type(type, dim) for type, dim in pairs])
    return [split(v, *pair) for v, pair in zip(found, pairs, strict=True)]
