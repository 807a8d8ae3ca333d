"""Expand `chlo.scan`, to which JAX lowers cumulative sums on a GPU, into a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback._jax import ir
from pullback.autodiff.batch_rules import MappedOp, batch, to_front
from pullback.autodiff.registry import Op, Rule, jointly, register
from pullback.ir import build, loop_carries
from pullback.ir.build import Value
from pullback.ir.regions import blocks, operations
from pullback.rules.derived import expanded
from pullback_runtime.ir._erasure import erase, spare


def scan(op: Op, operands: Sequence[Value]) -> list[Value]:
    """Emit the loop that applies (slices, carries) -> (slices of outputs, carries) at each index.

    Source: StableHLO's stablehlo/dialect/ChloOps.td, `ScanOp`.
    """
    dimension = ir.IntegerAttr(op.attributes["dimension"]).value
    many = _segment(op, "operandSegmentSizes")
    stacked = _segment(op, "resultSegmentSizes")
    outs = [build.info(v.type) for v in op.results[:stacked]]
    shapes = [(t.shape[dimension], *_without(t.shape, dimension)) for t in outs]
    inputs = [to_front(v, dimension) for v in operands[:many]]
    buffers = [
        build.zeros(build.tensor(shape, t.element)) for shape, t in zip(shapes, outs, strict=True)
    ]
    carries = list(operands[many:])
    count = _count(op, [*map(build.shape, inputs), *shapes])
    if count:
        carries, buffers = _loop(op, count, inputs, carries, buffers)
    return [*(_from_front(v, dimension) for v in buffers), *carries]


def _loop(
    op: Op,
    count: int,
    inputs: Sequence[Value],
    carries: Sequence[Value],
    buffers: Sequence[Value],
) -> tuple[list[Value], list[Value]]:
    """Emit a loop over the first dimension, from its last index to the first if `is_reverse`."""
    backwards = build.flag(op, "is_reverse")
    first, step = (count - 1, -1) if backwards else (0, 1)
    index = build.full(build.scalar("i32"), first)
    loop, cond, body = build.while_([index, *carries, *buffers])
    with build.inserting(ir.InsertionPoint(cond)):
        i = cond.arguments[0]
        more = build.compare("GE", i, 0) if backwards else build.compare("LT", i, count)
        build.return_([more])
    with build.inserting(ir.InsertionPoint(body)):
        i, *state = body.arguments
        slices = [loop_carries.read(x, i) for x in inputs]
        found = _step(op.operation, [*slices, *state[: len(carries)]])
        written = [
            loop_carries.write(buffer, v, i)
            for buffer, v in zip(state[len(carries) :], found[: len(buffers)], strict=True)
        ]
        build.return_([build.add(i, step), *found[len(buffers) :], *written])
    results = list(loop.results)[1:]
    return results[: len(carries)], results[len(carries) :]


def _step(operation: Any, values: Sequence[Value]) -> list[Value]:
    """Inline the body on these values at the insertion point, a block's end; return its results."""
    copy = spare(operation)
    block = copy.regions[0].blocks[0]
    for argument, v in zip(list(block.arguments), values, strict=True):
        argument.replace_all_uses_with(v)
    *steps, end = operations(block)
    results = list(end.operands)
    for step in steps:
        build.here.ip.block.append(step)
    erase(copy)
    return results


def _segment(op: Op, name: str) -> int:
    """Return how many operands (or results) come before the carries."""
    return int(np.asarray(ir.DenseI32ArrayAttr(op.attributes[name]))[0])


def _count(op: Op, shapes: Sequence[Sequence[int]]) -> int:
    if "scan_dim_size" in op.attributes:
        return ir.IntegerAttr(op.attributes["scan_dim_size"]).value
    return shapes[0][0]


def _without(shape: Sequence[int], dimension: int) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(shape) if d != dimension)


def _from_front(v: Value, dimension: int) -> Value:
    order = list(range(1, build.rank(v)))
    return build.permute(v, [*order[:dimension], 0, *order[dimension:]])


register(Rule("chlo.scan", *expanded(scan), jointly, __name__, "control", expand=scan))


# --------------------------------------------------------------------------------- batches


@batch("chlo.scan", captures=True)
def _batch(op: MappedOp) -> list[Value]:
    """Run the body once for all items, on batches of slices and of carries."""
    (body,) = blocks(op.operation)
    inner = op.frame.inner()
    inner.take(body.arguments, [True] * len(body.arguments))
    inner.run(body)
    inner.finish(body, [True] * len(op.results))
    dimension = ir.IntegerAttr(op.attributes["dimension"])
    return op.again(dimension=ir.IntegerAttr.get(dimension.type, dimension.value + 1))
