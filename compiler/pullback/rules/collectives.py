"""Differentiate collectives, ops of a program that runs on every device.

What is differentiated is the program as a whole: all devices' operands to all devices' results. A
device's cotangent is that of its own values, and every device runs the transpose. So the transpose
of a sum over devices, which all of them receive, is the sum over devices of the cotangents.

JAX agrees where it tracks which values vary (`shard_map` with `check_vma=True`): there it inserts
`pvary` where a value that is equal on all devices is used by each, and the transpose of that is the
sum; the transpose of `psum` itself, whose result does not vary, is then free of communication. In
the lowered program `pvary` is gone, and a value that is equal on all devices has one cotangent per
device, which are parts of a whole: their sum counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch, batch_alike
from pullback.autodiff.registry import (
    Op,
    Rule,
    Tangents,
    by_variant,
    jointly,
    linear,
    on_tangents,
    unsupported,
)
from pullback.ir import build
from pullback.ir.build import Value
from pullback.rules.body_patterns import body_name, check_scalars


def _groups(op: Op, *names: str) -> dict[str, Any]:
    """Return the attributes that say which devices take part, and how, and those of `names`."""
    kept = ("replica_groups", "channel_handle", "use_global_device_ids", *names)
    return {name: op.attributes[name] for name in kept if name in op.attributes}


def _each(op: Op, cts: Tangents, transpose: Any) -> list[Value | None]:
    """Return a cotangent for each operand of a collective that treats all operands alike."""

    def pull(v: Value, ct: Value) -> Value:
        return transpose(ct, build.with_element(v.type, build.info(ct.type).element))

    found = [None if ct is None else pull(v, ct) for v, ct in zip(op.operands, cts)]
    return found + [None] * (len(op.operands) - len(found))


# -------------------------------------------------------------------------------- reductions


def added(ct: Value, attributes: dict[str, Any], type: Any, name: str) -> Value:
    """Emit the collective `name` with a body that adds: a sum over devices, or a part of it."""
    new = build.emit(name, [type], [ct], attributes, regions=1)
    build.fill_binary(new.regions[0], "stablehlo.add", build.tensor((), build.info(type).element))
    return new.results[0]


def _all_reduce_transpose(op: Op, cts: Tangents) -> list[Value | None]:
    """Emit the same sum over devices of the cotangents."""
    groups = _groups(op)
    return _each(op, cts, lambda ct, type: added(ct, groups, type, "stablehlo.all_reduce"))


def _reduce_scatter_transpose(op: Op, cts: Tangents) -> list[Value | None]:
    """Gather the cotangents: each device's part is a sum over those of its group."""
    attributes = _groups(op) | {"all_gather_dim": build.i64(build.number(op, "scatter_dimension"))}
    return _each(
        op, cts, lambda ct, type: build.emit1("stablehlo.all_gather", type, [ct], attributes)
    )


def _linear_rule(name: str, transpose: Any) -> Rule:
    return Rule(
        name,
        on_tangents,
        transpose,
        jointly,
        __name__,
        "collective",
        keeps_type=True,
        hands_on=True,
    )


def _reduction(name: str, transpose: Any) -> None:
    """Register a collective that reduces: linear if its body adds; JAX has no rule for others."""
    rule = _linear_rule(name, transpose)

    def variant(op: Op) -> Rule:
        check_scalars(op)
        body = body_name(op.operation.regions[0])
        if body != "stablehlo.add":
            raise unsupported(
                op,
                f"that reduces with {body or 'a body of its own'}",
                "reduce with add, or wrap this step in jax.custom_jvp or jax.custom_vjp",
            )
        return rule

    by_variant(name, variant)


_reduction("stablehlo.all_reduce", _all_reduce_transpose)
_reduction("stablehlo.reduce_scatter", _reduce_scatter_transpose)


def cross_replica_sum(op: Op, cts: Tangents) -> list[Value | None]:
    """Emit the same sum over replicas of the cotangent."""
    return [build.clone(op.operation, list(cts)).result]


linear("stablehlo.cross-replica-sum", cross_replica_sum)


# ---------------------------------------------------------------------------------- exchange


def all_gather(op: Op, cts: Tangents) -> list[Value | None]:
    """Add the cotangents of all devices' copies, and leave each device its part: reduce_scatter."""
    attributes = _groups(op) | {"scatter_dimension": build.i64(build.number(op, "all_gather_dim"))}
    return _each(op, cts, lambda ct, type: added(ct, attributes, type, "stablehlo.reduce_scatter"))


def all_to_all(op: Op, cts: Tangents) -> list[Value | None]:
    """Exchange back: split along the dimension of the concatenation, and the other way round."""
    attributes = _groups(op, "split_count") | {
        "split_dimension": op.attributes["concat_dimension"],
        "concat_dimension": op.attributes["split_dimension"],
    }
    return _each(
        op, cts, lambda ct, type: build.emit1("stablehlo.all_to_all", type, [ct], attributes)
    )


_ALL_TO_ALL = _linear_rule("stablehlo.all_to_all", all_to_all)


def _all_to_all_variant(op: Op) -> Rule:
    """Return the rule for one operand; raise MissingRuleError for several.

    XLA gives each device one of several operands, whatever the dimensions say.
    """
    if len(op.results) == 1:
        return _ALL_TO_ALL
    raise unsupported(
        op,
        "of several operands, which XLA exchanges in another way than StableHLO says",
        "exchange each by an op of its own",
    )


def collective_permute(op: Op, cts: Tangents) -> list[Value | None]:
    """Permute along the reversed arrows; a device that received nothing sends nothing."""
    arrows = _matrix(op, "source_target_pairs")
    reversed_ = [(target, source) for source, target in arrows]
    return _each(op, cts, lambda ct, type: _permute(op, ct, reversed_))


def collective_broadcast(op: Op, cts: Tangents) -> list[Value | None]:
    """Sum the cotangents of each group onto its first member, which had sent, by halves.

    This takes permutations, which count devices as a broadcast does; `all_reduce` cannot, for
    partitions.
    """
    if "has_dynamic_root" in op.attributes:
        raise unsupported(
            op,
            "from a device that is computed",
            "name the device by a constant, or wrap this step in jax.custom_vjp",
        )
    groups = [[d for d in group if d >= 0] for group in _matrix(op, "replica_groups")]

    def to_first(total: Value, type: Any) -> Value:
        step = 1
        while step < max(map(len, groups), default=0):
            pairs = [(g[i + step], g[i]) for g in groups for i in range(0, len(g) - step, 2 * step)]
            total = build.add(total, _permute(op, total, pairs))
            step *= 2
        return _permute(op, total, [(g[0], g[0]) for g in groups])

    return _each(op, cts, to_first)


def _matrix(op: Op, name: str) -> list[list[int]]:
    return np.asarray(ir.DenseElementsAttr(op.attributes[name])).tolist()


def _permute(op: Op, x: Value, arrows: Sequence[tuple[int, int]]) -> Value:
    """Send x from each arrow's source to its target; devices that receive nothing have zeros."""
    attributes = {"source_target_pairs": build.i64_rows(arrows)}
    if "channel_handle" in op.attributes:
        attributes["channel_handle"] = op.attributes["channel_handle"]
    return build.emit1("stablehlo.collective_permute", x.type, [x], attributes)


linear("stablehlo.all_gather", all_gather, hands_on=True)
by_variant("stablehlo.all_to_all", _all_to_all_variant)
linear("stablehlo.collective_permute", collective_permute, hands_on=True)
linear("stablehlo.collective_broadcast", collective_broadcast, hands_on=True)


# --------------------------------------------------------------------------------- batches

for _name in ("all_reduce", "collective_permute", "cross-replica-sum"):
    batch_alike(f"stablehlo.{_name}")


@batch("stablehlo.collective_broadcast")
def _batch_of_broadcasts(op: MappedOp) -> list[Value] | None:
    """Broadcast all items from one device; an operand that is not batched may say from which."""
    operands = op.leading(len(op.results))
    return None if operands is None else op.again(operands)


@batch("stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.reduce_scatter")
def _batch(op: MappedOp) -> list[Value]:
    """Emit the op along the same dimensions of each item."""
    names = ("all_gather_dim", "concat_dimension", "scatter_dimension", "split_dimension")
    dims = [name for name in names if name in op.attributes]
    return op.again(**{name: build.i64(build.number(op, name) + 1) for name in dims})
