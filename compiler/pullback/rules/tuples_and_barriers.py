"""Differentiate ops that group or fence values: every value keeps its own derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch, repeated
from pullback.autodiff.checks import missing_rule
from pullback.autodiff.cotangent_reach import each_its_own
from pullback.autodiff.pending import bare, waiting_like
from pullback.autodiff.registry import (
    RULES,
    Op,
    Row,
    Tangents,
    apart,
    jointly,
    rule,
    unsupported,
)
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.masks import mask_of
from pullback.ir.regions import blocks, terminator
from pullback.rules.branches import in_place
from pullback.rules.calls.func_call import call_is_diagonal, present, scatter, vjp_of_function
from pullback.rules.scalar_bodies import jvp_of_function, map_as_function


@rule(
    "stablehlo.optimization_barrier",
    linear=apart,
    family="structure",
    elementwise=True,
    chooses=True,
)
class OptimizationBarrier:
    """Tangents and cotangents pass through a barrier of their own."""

    reached = staticmethod(each_its_own)

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return op.active

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return _fenced(op, tangents)

    @staticmethod
    def vjp(op: Op, cts: Sequence[Any]) -> list[Any]:
        pairs = zip(cts, _fenced(op, list(map(bare, cts))), strict=True)
        return [waiting_like(ct, v) for ct, v in pairs]


def _fenced(op: Op, values: Tangents) -> list[Value | None]:
    given = present(values)
    fenced = build.emit(op.name, [v.type for v in given], given).results
    return scatter([v is not None for v in values], list(fenced))


@rule("stablehlo.map", linear=jointly, family="control")
class Map:
    """The derivative of the body lifted to whole arrays, element by element."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return op.frame.diff.function_activity(map_as_function(op), mask_of(op.active), op.frame)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return jvp_of_function(op, map_as_function(op), tangents)

    @staticmethod
    def carry(op: Op, rows: Sequence[Row | None]) -> Sequence[Row | None]:
        return op.frame.through(op, map_as_function(op), rows)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return vjp_of_function(op, map_as_function(op), cts)

    @staticmethod
    def diagonal(op: Op, cts: Tangents) -> bool:
        return call_is_diagonal(op, map_as_function(op), cts)


# ---------------------------------------------------------------------------------- futures


@rule("stablehlo.async_start", linear=jointly, family="structure")
class AsyncStart:
    """A future has the tangents and cotangents of its array, which are computed synchronously."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        for use in op.results[0].uses:
            user = use.owner.operation
            if user.name != "stablehlo.async_done" or user.parent != op.operation.parent:
                raise missing_rule(user, user.name, " of a future")
        return [build.inexact(_started(op).result_type)]

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> Sequence[Value | None]:
        AsyncStart.activity(op)
        started = _started(op)
        return started.rule.jvp(started, tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> Sequence[Any]:
        started = _started(op)
        return started.rule.vjp(started, cts)


def _started(op: Op) -> Op:
    """Return the only op of the body, which takes the operands as they are."""
    block = op.operation.regions[0].blocks[0]
    operation = block.operations[0].operation
    known = RULES.get(operation.name)
    if known is None or list(operation.operands) != list(block.arguments):
        raise missing_rule(operation, operation.name, ", started asynchronously")
    return type(op)(operation, op.operands, list(operation.results), op.active, known, op.frame)


@rule("stablehlo.async_done", linear=apart, keeps_type=True, family="structure")
class AsyncDone:
    """The array and its future have one tangent and one cotangent."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return list(tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return list(cts)


# ----------------------------------------------------------------------------------- tuples


def _differentiable(type: Any) -> bool:
    return build.inexact(type) or isinstance(type, ir.TupleType)


@rule("stablehlo.tuple", linear=apart, family="structure")
class Tuple:
    """The tangent of a tuple is a tuple; in place of tangents, integers have their primal values.

    In reverse mode, `get_tuple_element` has sent its cotangent to the tuple's operands already.
    """

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return [any(op.active)]

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        pairs = zip(tangents, op.operands, strict=True)
        elements = [_at_rest(v) if t is None else t for t, v in pairs]
        return [build.emit1(op.name, op.result_type, elements)]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return [None] * len(op.operands)


def _at_rest(v: Value) -> Value:
    """Return the tangent of an element that does not change."""
    return _for_each(v, lambda x: build.zeros_like(x) if build.inexact(x.type) else x)


def _for_each(v: Value, f: Callable[[Value], Value]) -> Value:
    """Apply `f` to a value, or to each element of a tuple."""
    if not isinstance(v.type, ir.TupleType):
        return f(v)
    types = [v.type.get_type(i) for i in range(v.type.num_types)]
    parts = [
        build.emit1("stablehlo.get_tuple_element", t, [v], {"index": build.attr(f"{i} : i32")})
        for i, t in enumerate(types)
    ]
    return _tuple([_for_each(part, f) for part in parts])


def _tuple(elements: Sequence[Value]) -> Value:
    type = ir.TupleType.get_tuple([v.type for v in elements], _jax.context())
    return build.emit1("stablehlo.tuple", type, elements)


@rule("stablehlo.get_tuple_element", linear=apart, family="structure")
class GetTupleElement:
    """The tangent is that of the element; the cotangent goes to the operand of `tuple`."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return [_differentiable(op.result_type)]

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        if not _differentiable(op.result_type):
            return [None]
        return [build.clone(op.operation, [tangents[0]]).result]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        op.frame.accumulate(_source(op, op.results[0]), cts[0])
        return [None]


def _source(op: Op, v: Value) -> Value:
    """Return the value that a chain of `tuple` and `get_tuple_element` passes on."""
    if not build.is_result_of(v, "stablehlo.get_tuple_element"):
        return v
    index = build.number(v.owner, "index")
    whole = _source(op, v.owner.operands[0])
    if not build.is_result_of(whole, "stablehlo.tuple"):
        raise unsupported(
            op, "of a tuple from another function", "inline that first, by the pass inline-calls"
        )
    return _source(op, whole.owner.operands[index])


# --------------------------------------------------------------------------------- batches


@batch("stablehlo.optimization_barrier")
def _batch_barrier(op: MappedOp) -> list[Value]:
    """Emit the same barrier; values that all items share stay so."""
    return op.again(op.values, [v.type for v in op.values])


@batch("stablehlo.map")
def _batch_map(op: MappedOp) -> list[Value]:
    """Map along the batch axis as well: the body takes scalars."""
    return op.again(dimensions=build.i64s(tuple(range(len(op.shape(0)) + 1))))


@batch("stablehlo.tuple")
def _batch_tuple(op: MappedOp) -> Value:
    """Make a tuple of batches."""
    pairs = zip(op.values, op.batched, strict=True)
    return _tuple([v if b else _for_each(v, lambda x: repeated(x, op.size)) for v, b in pairs])


@batch("stablehlo.get_tuple_element")
def _batch_get_tuple_element(op: MappedOp) -> list[Value]:
    """Take the element of a tuple of batches, which is a batch."""
    index = build.number(op, "index")
    return op.again(op.values, [op.values[0].type.get_type(index)])


@batch("stablehlo.async_start", captures=True)
def _batch_async_start(op: MappedOp) -> list[Value] | None:
    """Replace the future by its array: compute the body synchronously."""
    (block,) = blocks(op.operation)
    if len(terminator(block).operands) != 1:
        return None
    for argument, operand in zip(block.arguments, op.operation.operands, strict=True):
        argument.replace_all_uses_with(operand)
    return in_place(op, block)


@batch("stablehlo.async_done")
def _batch_async_done(op: MappedOp) -> list[Value]:
    """Return the operand, which is the array already."""
    return op.values
