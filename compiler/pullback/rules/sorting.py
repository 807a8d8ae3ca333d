"""Differentiate sorting: results are permutations of the operands, and so are their tangents."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch, batch_alike
from pullback.autodiff.cotangent_reach import each_its_own
from pullback.autodiff.registry import (
    InPlace,
    Mask,
    Op,
    Rule,
    Tangents,
    apart,
    by_variant,
    never,
    rule,
)
from pullback.ir import build, indexing
from pullback.ir.build import Value
from pullback.ir.dependence import decide
from pullback.ir.indexing import Dimensions
from pullback.rules.calls.func_call import before


class Sort:
    """The rule of sort: the op sorts positions as well, and tangents are gathered at these.

    Source: jax/_src/lax/lax.py, `_sort_jvp`.
    """

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return list(op.active)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        axis, origin = _sort_positions(op)
        return [None if t is None else _pick(t, origin, axis) for t in tangents]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Any]:
        axis, origin = _sort_positions(op)
        return [None if ct is None else _put_back(ct, origin, axis) for ct in cts]


def _sort_rule(linear: Callable[[Mask], bool]) -> Rule:
    return Rule(
        "stablehlo.sort",
        Sort.jvp,
        Sort.vjp,
        linear,
        __name__,
        "own",
        activity=Sort.activity,
        reached=each_its_own,
        hands_on=True,
    )


_BY_KEY, _BY_PAYLOAD = _sort_rule(never), _sort_rule(apart)


def _sort_variant(op: Op) -> Rule:
    """Return the linear rule if the comparator reads no active operand, else the other one."""
    compared = decide(op.operation)
    return _BY_KEY if any(map(operator.and_, op.active, compared)) else _BY_PAYLOAD


by_variant("stablehlo.sort", _sort_variant)


def _sort_positions(op: Op) -> tuple[int, Value]:
    """Replace the op by one that sorts an iota as well; return its axis, and origins."""
    given = ("dimension", "is_stable")
    attributes = {name: op.attributes[name] for name in given if name in op.attributes}
    axis = _dimension(op) % max(len(op.shape(0)), 1)
    operands, results = list(op.operands), list(op.results)
    position = build.with_element(operands[0].type, build.element_type("i32"))
    with before(op):
        operands.append(build.iota(position, axis))
        types = [*(r.type for r in results), position]
        new = build.emit("stablehlo.sort", types, operands, attributes, regions=1)
        block = op.operation.regions[0].blocks[0]
        block.append_to(new.regions[0])
        for _ in range(2):
            block.add_argument(build.scalar("i32"), op.operation.location)
    *sorted_, origin = list(new.results)
    op.frame.replace(op, sorted_)
    return axis, op.frame.primal(origin)


def _dimension(op: Op | MappedOp) -> int:
    """Return the dimension that an op sorts along; a negative one is counted from the end."""
    return ir.IntegerAttr(op.attributes.get("dimension", build.i64(-1))).value


def _along(origin: Value, axis: int) -> tuple[Value, Dimensions]:
    """Return indices and dimension numbers that pick single elements along an axis."""
    shape = build.shape(origin)
    others = tuple(d for d in range(len(shape)) if d != axis)
    indices = build.reshape(origin, (*shape, 1))
    return indices, Dimensions((), (axis,), others, others, (axis,), len(shape))


def _pick(x: Value, origin: Value, axis: int) -> Value:
    """Gather the element of `x` at each origin."""
    indices, dims = _along(origin, axis)
    return indexing.gather(x, indices, dims, (1,) * build.rank(x))


def _put_back(ct: Value, origin: Value, axis: int) -> InPlace:
    """Add each element at its origin, in place."""

    def update(total: Value) -> Value:
        indices, dims = _along(origin, axis)
        return indexing.scatter(total, indices, ct, dims, unique=True)

    return InPlace(update)


@rule("chlo.top_k")
class TopK:
    """The rule of top_k: the op returns the positions, at which tangents are gathered.

    Source: jax/_src/lax/lax.py, `_top_k_jvp`.
    """

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return [True, False]

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        origin = op.frame.primal(op.results[1])
        return [_pick(tangents[0], origin, build.rank(origin) - 1), None]

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Any]:
        if cts[0] is None:
            return [None]
        origin = op.frame.primal(op.results[1])
        return [_put_back(cts[0], origin, build.rank(origin) - 1)]


# --------------------------------------------------------------------------------- batches
batch_alike("chlo.top_k")


@batch("stablehlo.sort")
def _batch_sort(op: MappedOp) -> list[Value]:
    """Sort along the same dimension of each item; one counted from the end stays."""
    if not op.shape(0):
        return op.operands()
    dimension = _dimension(op)
    return op.again(dimension=build.i64(dimension + 1 if dimension >= 0 else dimension))
