"""Recognize simple bodies of reductions, scatters and collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pullback._jax import ir
from pullback.autodiff.registry import Op, unsupported
from pullback.ir.build import Value, info, is_result_of
from pullback.ir.regions import TERMINATORS, operations

CONSTRAINT = "sdy.sharding_constraint"
"""JAX puts it into regions as well, where a `shard_map` leaves axes of the mesh to the compiler."""


class Applied(NamedTuple):
    """The only op of a region (None if the region returns an argument) and the values it reads."""

    op: Any | None
    operands: list[Value]


def applied(block: Any) -> Applied | None:
    """Return what a region with one result applies to its arguments; None if it has several ops."""
    *before, end = operations(block)
    steps = [operation for operation in before if operation.name != CONSTRAINT]
    read: Callable[[Any], list[Value]] = list if len(steps) == len(before) else _unconstrained
    returned = read(end.operands)
    if not steps and len(returned) == 1:
        return Applied(None, returned)
    if len(steps) != 1 or returned != list(steps[0].results):
        return None
    return Applied(steps[0], read(steps[0].operands))


def _unconstrained(values: Sequence[Value]) -> list[Value]:
    return list(map(unconstrained, values))


def unconstrained(v: Value) -> Value:
    """Return the value that a chain of sharding constraints starts from."""
    while is_result_of(v, CONSTRAINT):
        v = v.owner.operands[0]
    return v


def check_scalars(op: Op, init: Value | None = None) -> None:
    """Raise MissingRuleError if the body takes arrays, or wider types than the operands have.

    MLIR accepts both, XLA neither. The types of results and initial values tell.
    """
    pairs = zip(op.results, op.operands)
    wider = any(info(r.type).element != info(v.type).element for r, v in pairs)
    if wider or (init is not None and info(init.type).shape):
        raise unsupported(
            op,
            "with a body that is not on scalars of its operands' types",
            "convert the operands to the types of the body, and write that on scalars",
        )


COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum"))


def body_name(region: Any) -> str:
    """Return the name of the op if a region has the form (a, b) -> op(a, b), else ''.

    A commutative op may have its operands in either order.
    """
    block = region.blocks[0]
    if name := lone_name(block):
        return name
    arguments, found = list(block.arguments), applied(block)
    if found is None or found.op is None:
        return ""
    swapped = found.op.name in COMMUTATIVE and found.operands == arguments[::-1]
    return found.op.name if swapped or found.operands == arguments else ""


def lone_name(block: Any) -> str:
    """Return the op's name as `body_name` does, for commutative ops only: a fast path."""
    operation = ir.InsertionPoint.at_block_begin(block).ref_operation
    name = operation.name
    end = ir.InsertionPoint.after(operation).ref_operation if name in COMMUTATIVE else None
    if end is None or end.name not in TERMINATORS:
        return ""
    arguments, operands, returned = block.arguments, operation.operands, end.operands
    if len(arguments) != 2 or len(returned) != 1 or returned[0] != operation.result:
        return ""
    a, b, x, y = arguments[0], arguments[1], operands[0], operands[1]
    return name if (x == a and y == b) or (x == b and y == a) else ""
