"""Blocks: their operations, their terminators, and the values from outside that they capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pullback._jax import ir
from pullback.ir import build
from pullback.ir.build import Value, is_result_of
from pullback_runtime.ir._erasure import erase

WHILE = "stablehlo.while"
BRANCHES = ("stablehlo.case", "stablehlo.if")
MANUAL = "sdy.manual_computation"
"""A body that runs on every device, which takes the operands and uses nothing else."""

TERMINATORS = frozenset({"func.return", "stablehlo.return", "sdy.return"})
APART = frozenset({"stablehlo.optimization_barrier", "stablehlo.sort"})
"""Ops that forward each operand, with elements in an order that may depend on some of them."""


def operations(block: Any) -> list[Any]:
    """Return the operations of a block, without those nested in them."""
    found: list[Any] = []
    append, after = found.append, ir.InsertionPoint.after
    operation = ir.InsertionPoint.at_block_begin(block).ref_operation
    while operation is not None:  # takes half the time of the block's own iterator, or of a walk
        append(operation)
        operation = after(operation).ref_operation
    return found


def operands_of(operation: Any) -> list[Value]:
    """Return the operands of an operation."""
    values = operation.operands
    count = len(values)
    if count == 2:  # the binding's iterator takes twice as long
        return [values[0], values[1]]
    return [values[0]] if count == 1 else list(values)


def results_of(operation: Any) -> list[Value]:
    """Return the results of an operation."""
    try:
        return [operation.result]  # faster than asking for a list of one
    except ValueError:
        return list(operation.results)


def terminator(block: Any) -> Any:
    return ir.InsertionPoint.at_block_terminator(block).ref_operation


def block_of(operation: Any) -> Any:
    """Return the block that an operation is in."""
    return ir.InsertionPoint(operation).block


def blocks(operation: Any) -> list[Any]:
    """Return the block of each region; ops of control flow have one in each."""
    return [region.blocks[0] for region in operation.regions]


SHARDINGS = "sdy.sharding", "mhlo.sharding"
"""Attributes that say how results are sharded over devices, each in its place."""


def remade(operation: Any, types: Sequence[Any], operands: Sequence[Value] | None = None) -> Any:
    """Create an op, here, that takes over the regions of another one and has other results.

    It has the attributes of the other one, but says how its results are sharded only if there are
    as many as before.
    """
    attributes = dict(operation.attributes.items())
    if len(types) != len(operation.results):
        attributes = {k: v for k, v in attributes.items() if k not in SHARDINGS}
    given = list(operation.operands) if operands is None else operands
    new = build.emit(operation.name, types, given, attributes, regions=len(operation.regions))
    for block, region in zip(blocks(operation), list(new.regions), strict=True):
        block.append_to(region)
    return new


def replace_op(operation: Any, values: Iterable[Value]) -> None:
    """Replace the results of an op by these values, and erase it."""
    for old, new in zip(list(operation.results), values, strict=True):
        old.replace_all_uses_with(new)
    erase(operation)


def replace_terminator(block: Any, values: Sequence[Value]) -> None:
    """Replace the terminator of a block by one that returns `values`."""
    old = terminator(block)
    ir.Operation.create(
        old.name, operands=list(values), loc=old.location, ip=ir.InsertionPoint(old)
    )
    erase(old)


def latest(v: Value, replaced: Mapping[Value, Value]) -> Value:
    """Return what stands for a value now: follow its replacements to the last one."""
    while v in replaced:
        v = replaced[v]
    return v


def captures(operation: Any) -> list[Value]:
    """Return the values from outside of an op that its regions use, each once, in order."""
    return captured_by([block for region in operation.regions for block in region.blocks])


def captured_elements(operation: Any) -> list[Value]:
    """Let regions use the elements of captured tuples as they are, and return what they capture.

    Each element has a cotangent slot; a tuple has none.
    """
    found = captures(operation)
    while reads := [read for v in found for read in _reads_inside(v)]:
        for read in reads:
            index = ir.IntegerAttr(read.attributes["index"]).value
            whole = read.operands[0].owner
            read.result.replace_all_uses_with(whole.operands[index])
            erase(read)
        found = captures(operation)
    return found


def _reads_inside(v: Value) -> list[Any]:
    """Return the ops that take elements of a tuple in regions nested below where it was made."""
    if not is_result_of(v, "stablehlo.tuple"):
        return []
    users = (use.owner.operation for use in v.uses)
    reads = (user for user in users if user.name == "stablehlo.get_tuple_element")
    return [read for read in reads if read.parent != v.owner.parent]


def captured_by(blocks: Sequence[Any]) -> list[Value]:
    """Return the values from outside of these blocks that they use, each once, in order."""
    inside: set[Any] = set()
    found: dict[Value, None] = {}
    for block in blocks:
        _collect_captures(block, inside, found)
    return list(found)


def _collect_captures(block: Any, inside: set[Any], found: dict[Value, None]) -> None:
    inside.update(block.arguments)
    for view in block.operations:
        operation = view.operation
        for v in operation.operands:
            if v not in inside:
                found[v] = None
        for region in operation.regions:
            for nested in region.blocks:
                _collect_captures(nested, inside, found)
        inside.update(operation.results)
