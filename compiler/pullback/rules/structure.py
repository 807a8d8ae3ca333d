"""Ops that group values or fence them: every value keeps its own derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.passes.differentiation import mask_of, missing_rule
from pullback.rules.calls import present, scatter, vjp_of_function
from pullback.rules.expansion import jvp_of_function, map_as_function
from pullback.rules.registry import RULES, Mask, Op, Tangents, jointly, rule


def one_by_one(active: Mask) -> bool:
    """Linear, and what is not active adds nothing to what is: it is another result."""
    return True


@rule("stablehlo.optimization_barrier", linear=one_by_one, family="structure")
class OptimizationBarrier:
    """Tangents and cotangents pass a barrier of their own."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return op.active

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return _fenced(op, tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return _fenced(op, cts)


def _fenced(op: Op, values: Tangents) -> list[Value | None]:
    given = present(values)
    fenced = build.emit(op.name, [v.type for v in given], given).results
    return scatter([v is not None for v in values], list(fenced))


@rule("stablehlo.map", linear=jointly, family="control")
class Map:
    """The body on whole arrays, element by element."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return op.frame.diff.function_activity(map_as_function(op), mask_of(op.active), op.frame)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return jvp_of_function(op, map_as_function(op), tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return vjp_of_function(op, map_as_function(op), cts)


# ---------------------------------------------------------------------------------- futures


@rule("stablehlo.async_start", linear=jointly, family="structure")
class AsyncStart:
    """Tangents and cotangents of a future are those of the array it will be, computed at once."""

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
    """The one op in the body, which takes the operands as they are."""
    block = op.operation.regions[0].blocks[0]
    operation = block.operations[0].operation
    known = RULES.get(operation.name)
    if known is None or list(operation.operands) != list(block.arguments):
        raise missing_rule(operation, operation.name, ", started asynchronously")
    return type(op)(operation, op.operands, list(operation.results), op.active, known, op.frame)


@rule("stablehlo.async_done", linear=one_by_one, keeps_type=True, family="structure")
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


@rule("stablehlo.tuple", linear=one_by_one, family="structure")
class Tuple:
    """Tangents are a tuple as well; in its integer places the primal values stand again.

    Backward, the elements that were taken out have sent their cotangents to the operands already.
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
    """The tangent of an element that does not change."""
    if not isinstance(v.type, ir.TupleType):
        return build.zeros_like(v) if build.inexact(v.type) else v
    types = [v.type.get_type(i) for i in range(v.type.num_types)]
    parts = [
        build.emit1("stablehlo.get_tuple_element", t, [v], {"index": build.attr(f"{i} : i32")})
        for i, t in enumerate(types)
    ]
    return build.emit1("stablehlo.tuple", v.type, list(map(_at_rest, parts)))


@rule("stablehlo.get_tuple_element", linear=one_by_one, family="structure")
class GetTupleElement:
    """The element's tangent; the cotangent goes to what the tuple was made of."""

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
    """The value that a chain of tuples and get_tuple_elements hands on."""
    if isinstance(v, ir.BlockArgument) or v.owner.name != "stablehlo.get_tuple_element":
        return v
    index = ir.IntegerAttr(v.owner.attributes["index"]).value
    whole = _source(op, v.owner.operands[0])
    if isinstance(whole, ir.BlockArgument) or whole.owner.name != "stablehlo.tuple":
        raise missing_rule(op.operation, op.name, " of a tuple from another function")
    return _source(op, whole.owner.operands[index])
