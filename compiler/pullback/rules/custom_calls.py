"""Differentiate custom calls: by the rule of their target, or raise; annotations stay.

A rule for calls of one target is registered under a name with that target, such as
`stablehlo.custom_call @acme_gelu`.
"""

from __future__ import annotations

from typing import Any

from pullback._jax import sdy
from pullback.autodiff.batch_rules import BATCHES, MappedOp, batch
from pullback.autodiff.registry import (
    NONDIFFERENTIABLE,
    RULES,
    Op,
    Rule,
    Tangents,
    by_variant,
    jointly,
    register,
    without_derivative,
)
from pullback.errors import MissingRuleError
from pullback.ir import build
from pullback.ir.build import Value, hides_inexact, inexact
from pullback.ir.locations import user_line
from pullback.ir.purity import ANNOTATIONS, PLACEMENT, target_of
from pullback.rules.linalg import batch_of_lapack


def _again(op: Op, values: Tangents) -> list[Value | None]:
    """Put the same annotation on a tangent or cotangent, as JAX does."""
    return [_annotated(op, *values).result]


def _annotated(op: Op, v: Any) -> Any:
    return build.emit(op.operation.name, [v.type], [v], dict(op.attributes.items()))


def _handed_on(_: Op, cts: Tangents) -> list[Value | None]:
    """Leave a cotangent on the device, wherever its primal value is: it is computed with there."""
    return list(cts)


_CALL = "stablehlo.custom_call"


def _annotation(vjp: Any) -> Rule:
    return Rule(
        _CALL,
        _again,
        vjp,
        jointly,
        __name__,
        "annotation",
        keeps_type=True,
        elementwise=True,
        hands_on=True,
    )


_ANNOTATION, _PLACEMENT = _annotation(_again), _annotation(_handed_on)
_WITHOUT_DERIVATIVE = without_derivative(_CALL, __name__)


def _custom_call_variant(op: Op) -> Rule:
    """Return the call's rule; raise MissingRuleError if an opaque call has inexact results."""
    target = target_of(op.operation)
    rule = RULES.get(f"{_CALL} @{target}")
    if rule is not None:
        return rule if rule.variant is None else rule.variant(op)
    if f"{_CALL} @{target}" in NONDIFFERENTIABLE:
        return _WITHOUT_DERIVATIVE
    if target in ANNOTATIONS and len(op.operands) == len(op.results) == 1:
        return _PLACEMENT if target == PLACEMENT else _ANNOTATION
    if not any(inexact(r.type) or hides_inexact(r.type) for r in op.results):
        return _WITHOUT_DERIVATIVE
    if op.frame.linear:
        raise MissingRuleError(
            f"no derivative rule for `stablehlo.custom_call` @{target} that is to be transposed",
            where=user_line(op.operation.location),
            do="say in the rule what its transpose is, with pb.linear_call; or give the function "
            "a backward rule, with jax.custom_vjp. Forward mode (pb.jvp) needs neither",
        )
    raise MissingRuleError(
        f"no derivative rule for `stablehlo.custom_call` @{target}",
        where=user_line(op.operation.location),
        do="wrap this call in jax.custom_jvp or jax.custom_vjp, or register a rule for it "
        "(docs/extending.md#rules); in a module by hand, wrap it in a function "
        "that a pullback.custom_jvp_call with rules calls: docs/dialect.md. If jax.export wrote "
        "it, it left JAX's rule out: save pb.trace(f)(...) instead, or export with vjp_order=1; "
        "where the function calls it, call pb.from_exported(exported), which puts rules back",
    )


by_variant(_CALL, _custom_call_variant)


def _constraint(op: Op, values: Tangents) -> list[Value | None]:
    """Put the same constraint on a tangent or cotangent, with sums over devices completed.

    XLA leaves a sum over devices undone only for the result of a product; of other values it may
    add up each device's copy.
    """
    again = _annotated(op, *values)
    again.attributes["sharding"] = summed(sdy.TensorShardingAttr(op.attributes["sharding"]))
    return [again.result]


def summed(sharding: Any) -> Any:
    """Return the same sharding, but with sums over devices complete (no `unreduced` axes)."""
    dims, replicated = list(sharding.dimension_shardings), list(sharding.replicated_axes)
    return sdy.TensorShardingAttr.get(sharding.mesh_or_ref, dims, replicated)


register(
    Rule(
        "sdy.sharding_constraint",
        _constraint,
        _constraint,
        jointly,
        __name__,
        "linear",
        keeps_type=True,
        elementwise=True,
        hands_on=True,
    )
)


# --------------------------------------------------------------------------------- batches


@batch(_CALL)
def _batch(op: MappedOp) -> Any:
    """Batch a call by the rule of its target; place a batch in memory as an item.

    Otherwise only calls of LAPACK have a rule. Other annotations speak of dimensions.
    """
    target = target_of(op.operation)
    if (rule := BATCHES.get(f"{_CALL} @{target}")) is not None:
        return rule(op)
    return op.again() if target == PLACEMENT else batch_of_lapack(op)


@batch("sdy.sharding_constraint")
def _batch_constraint(op: MappedOp) -> list[Value]:
    """Leave the sharding of each item as it is; the partitioner places the batch axis."""
    one = sdy.TensorShardingAttr(op.attributes["sharding"])
    dims = [sdy.DimensionShardingAttr.get([], is_closed=False), *one.dimension_shardings]
    rest = [list(one.replicated_axes), list(one.unreduced_axes)]
    if hasattr(one, "reduction_op"):  # what is left undone; a sum before jax 0.11
        rest.append(one.reduction_op)
    return op.again(sharding=sdy.TensorShardingAttr.get(one.mesh_or_ref, dims, *rest))
