"""Ops that group values or fence them: every value keeps its own derivative."""

from __future__ import annotations

from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.passes.differentiation import mask_of
from pullback.rules.calls import present, scatter, vjp_of_function
from pullback.rules.expansion import jvp_of_function, map_as_function
from pullback.rules.registry import Mask, Op, Tangents, jointly, rule


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
        return op.frame.diff.function_activity(map_as_function(op), mask_of(op.active))

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return jvp_of_function(op, map_as_function(op), tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return vjp_of_function(op, map_as_function(op), cts)
