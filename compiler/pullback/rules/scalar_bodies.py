"""Write ops with a scalar body out as functions on whole arrays.

`stablehlo.map` and `stablehlo.reduce` apply a region to scalars. Lifted to arrays, element by
element, the region's ops are ordinary ops, and the derivative of the whole is that of a call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback._jax import ir
from pullback.autodiff.checks import FROM_OUTSIDE, missing_rule
from pullback.autodiff.registry import Op, Tangents
from pullback.autodiff.state import Differentiation
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.masks import mask_of
from pullback.ir.regions import captures, operations
from pullback.ir.symbols import callee
from pullback.ir.traits import ELEMENTWISE, MOVES
from pullback.rules.body_patterns import CONSTRAINT
from pullback.rules.calls.func_call import jvp_call

_IN_BODY = " in the body of a reduction or map"


def jvp_of_function(op: Op, name: str, tangents: Tangents) -> list[Value | None]:
    """Return the tangents of an op whose results are those of @name on its operands."""
    return jvp_call(op.frame.diff, name, mask_of(op.active), op.operands, tangents)[1]


def lift(
    diff: Differentiation, block: Any, arguments: Sequence[Value], shape: tuple[int, ...]
) -> list[Value]:
    """Emit the ops of a scalar block on arrays of one shape; return its results."""
    values = dict(zip(block.arguments, arguments, strict=True))
    *steps, end = operations(block)
    for operation in steps:
        results = _lift_op(diff, operation, values, shape)
        values.update(zip(operation.results, results, strict=True))
    return [_lifted(end, v, values, shape) for v in end.operands]


def _lift_op(
    diff: Differentiation, operation: Any, values: dict[Value, Value], shape: tuple[int, ...]
) -> list[Value]:
    name = operation.name
    if not all(_is_one(r) for r in operation.results):
        raise missing_rule(operation, name, _IN_BODY)
    if not len(operation.operands):
        copy = operation.clone(build.here.ip)
        return [_repeated(r, shape) for r in copy.results]
    operands = [_lifted(operation, v, values, shape) for v in operation.operands]
    if name == "func.call":
        return lift(diff, diff.block(callee(operation)), operands, shape)
    if name == CONSTRAINT or (name in MOVES and len(operands) == 1):
        return operands
    if name not in ELEMENTWISE:
        raise missing_rule(operation, name, _IN_BODY)
    types = [build.with_shape(r.type, shape) for r in operation.results]
    new = build.emit(name, types, operands, dict(operation.attributes.items()))
    return list(new.results)


def _lifted(operation: Any, v: Value, values: dict[Value, Value], shape: tuple[int, ...]) -> Value:
    """Return an operand as an array; a constant from outside is cloned, as XLA allows those."""
    if v in values:
        return values[v]
    if not build.is_constant(v) or not _is_one(v):
        raise missing_rule(operation, operation.name, FROM_OUTSIDE)
    return _repeated(v.owner.clone(build.here.ip).result, shape)


def _is_one(v: Value) -> bool:
    """Return True if a value has one element."""
    return math.prod(build.shape(v)) == 1 and -1 not in build.shape(v)


def _repeated(v: Value, shape: tuple[int, ...]) -> Value:
    """Broadcast the only element of a value to this shape."""
    return build.broadcast_in_dim(build.reshape(v, ()), shape, ())


# -------------------------------------------------------------------------------- functions


def map_as_function(op: Op) -> str:
    """Outline `stablehlo.map` as a private function of its operands; return its name."""
    return _as_function(op, "map", _map)


def reduce_as_function(op: Op) -> str:
    """Outline `stablehlo.reduce` as a private function: a tree of its body's steps."""
    return _as_function(op, "reduce", _reduce)


def _as_function(op: Op, kind: str, emit: Any) -> str:
    operation, diff = op.operation, op.frame.diff
    body = operation.regions[0].blocks[0]
    operands = list(operation.operands)
    types = tuple(str(v.type) for v in operands)
    outside = tuple(str(v.owner) for v in captures(operation))
    key = (kind, types, str(operation.attributes["dimensions"]), str(body), outside)

    def make() -> str:
        results = [r.type for r in operation.results]
        name, block = diff.add_function(
            kind, [v.type for v in operands], results, operation.location
        )
        with build.inserting(ir.InsertionPoint(block), operation.location):
            outs = emit(diff, operation, body, list(block.arguments))
            build.emit("func.return", (), outs)
        return name

    return diff.cached(key, make)


def _map(diff: Differentiation, operation: Any, body: Any, arguments: list[Value]) -> list[Value]:
    return lift(diff, body, arguments, build.shape(operation.results[0]))


def _reduce(
    diff: Differentiation, operation: Any, body: Any, arguments: list[Value]
) -> list[Value]:
    """Combine neighbours until one is left, then combine that with the initial value.

    JAX's rule for products does the same: no division, so zeros need no special case. Neighbours
    stay in order, since a body need not be commutative.
    """
    count = len(arguments) // 2
    xs, inits = arguments[:count], arguments[count:]
    dimensions = build.integers(operation.attributes["dimensions"])
    shape = build.shape(operation.results[0])
    for x in xs:
        build.static(x.type, "a reduction step by step")
    xs = [_flatten(x, dimensions) for x in xs]
    start = [build.broadcast_in_dim(i, shape, ()) for i in inits]
    if build.shape(xs[0])[0] == 0:
        return start
    while build.shape(xs[0])[0] > 1:
        xs = _combine_neighbours(diff, body, xs)
    return lift(diff, body, [*start, *(build.reshape(x, shape) for x in xs)], shape)


def _flatten(x: Value, dimensions: Sequence[int]) -> Value:
    """Merge the reduced dimensions, which are a set, into a leading one, in index order."""
    shape, dimensions = build.shape(x), sorted(dimensions)
    kept = [i for i in range(len(shape)) if i not in dimensions]
    size = math.prod(shape[i] for i in dimensions)
    x = build.permute(x, [*dimensions, *kept])
    return build.reshape(x, (size, *(shape[i] for i in kept)))


def _combine_neighbours(diff: Differentiation, body: Any, xs: list[Value]) -> list[Value]:
    shape = build.shape(xs[0])
    even = shape[0] // 2 * 2
    left, right = ([build.part(x, 0, first, even, 2) for x in xs] for first in (0, 1))
    found = lift(diff, body, [*left, *right], build.shape(left[0]))
    if even == shape[0]:
        return found
    last = [build.part(x, 0, even, shape[0]) for x in xs]
    return [build.concatenate([f, x], 0) for f, x in zip(found, last, strict=True)]
