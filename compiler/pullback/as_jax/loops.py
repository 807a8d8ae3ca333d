"""Loops: scans where the length is known, with what they read and write slot by slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax import lax

from pullback._jax import ir
from pullback.as_jax.table import Array, OpInJax, evaluates
from pullback.ir import build
from pullback.ir.regions import operations
from pullback.ir.stacks import Stack, affine, is_one_slot, stacks_of
from pullback.ir.while_loops import Loop, read_loop


@evaluates("stablehlo.while")
def _while(op: OpInJax, *operands: Array) -> list[Array]:
    """Run a loop of known length as a scan, which has a reverse mode; any other as it is."""
    op.attributes.names.add("pullback.max_trip_count")
    condition, body = op.regions
    loop = read_loop(op.operation)
    if loop.trip_count is None:
        return list(lax.while_loop(lambda c: condition(*c)[0], lambda c: body(*c), [*operands]))
    return _scan(op, loop, loop.trip_count, list(operands)) if loop.trip_count else [*operands]


class _Slots(NamedTuple):
    """The slots of a buffer that iterations read or write, one after the other."""

    first: int
    last: int

    def of(self, buffer: Array) -> Array:
        """Return the slots in the order of the iterations."""
        low, high = sorted(self)
        return self.turned(lax.slice_in_dim(buffer, low, high + 1))

    def turned(self, items: Array) -> Array:
        return lax.rev(items, (0,)) if self.last < self.first else items


def _scan(op: OpInJax, loop: Loop, length: int, operands: list[Array]) -> list[Array]:
    """Run a loop as a scan over the slots that it reads, which stacks those that it writes.

    What it hands on in each iteration is the rest of its carries.
    """
    body, stacks = op.regions[1], {stack.carry: stack for stack in stacks_of(loop)}
    fixed = {i for i in range(len(operands)) if loop.is_invariant(i)}
    moving = [i for i in range(len(operands)) if i not in fixed and i not in stacks]
    reads = _reads(loop, length)

    def step(carry: Sequence[Array], items: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        args = [x if i in fixed else None for i, x in enumerate(operands)]
        for i, x in zip(moving, carry, strict=True):
            args[i] = x
        known = {v: lax.expand_dims(x, (0,)) for v, x in zip(reads, items, strict=True)}
        known |= {loop.yields[i]: None for i in stacks}
        wanted = [*(loop.yields[i] for i in moving), *(s.update for s in stacks.values())]
        found = body.partly(args, known, wanted)
        return found[: len(moving)], [lax.squeeze(x, (0,)) for x in found[len(moving) :]]

    buffers = [_buffer(op, loop, operands, v) for v in reads]
    items = [slots.of(x) for slots, x in zip(reads.values(), buffers, strict=True)]
    last, written = lax.scan(step, [operands[i] for i in moving], items, length=length)
    results = list(operands)
    for i, x in zip(moving, last, strict=True):
        results[i] = x
    for stack, x in zip(stacks.values(), written, strict=True):
        results[stack.carry] = _laid_into(operands[stack.carry], stack, x)
    return results


def _laid_into(buffer: Array, stack: Stack, items: Array) -> Array:
    """Return a buffer with the items that the iterations write."""
    items = _Slots(stack.first, stack.last).turned(items)
    if stack.count == stack.slots:
        return items
    return lax.dynamic_update_slice_in_dim(buffer, items, min(stack.first, stack.last), 0)


def _reads(loop: Loop, length: int) -> dict[Any, _Slots]:
    """Return which slices of the body read one slot of a fixed buffer each, side by side."""
    found = {}
    for operation in operations(loop.body):
        if operation.name == "stablehlo.dynamic_slice" and _is_fixed(loop, operation.operands[0]):
            slots = _slots(loop, length, operation)
            if slots is not None:
                found[operation.result] = slots
    return found


def _is_fixed(loop: Loop, v: Any) -> bool:
    """Return True for a value from outside of the loop, or a carry that no iteration changes."""
    if isinstance(v, ir.BlockArgument) and v.owner == loop.body:
        return loop.is_invariant(v.arg_number)
    return not (isinstance(v, ir.OpResult) and ir.InsertionPoint(v.owner).block == loop.body)


def _slots(loop: Loop, length: int, operation: Any) -> _Slots | None:
    whole, *starts = operation.operands
    sizes = build.shape(whole)
    if not is_one_slot(sizes, build.shape(operation.result), starts):
        return None
    for counter in loop.counters:
        argument = loop.body.arguments[counter.index]
        ends = counter.start, counter.start + counter.step * (length - 1)
        found = affine(starts[0], argument, ends)
        if found is not None and abs(found[1] - found[0]) == length - 1:
            return _Slots(*found) if min(found) >= 0 and max(found) < sizes[0] else None
    return None


def _buffer(op: OpInJax, loop: Loop, operands: Sequence[Array], read: Any) -> Array:
    """Return the buffer that a slice of the body reads."""
    buffer = read.owner.operands[0]
    inside = isinstance(buffer, ir.BlockArgument) and buffer.owner == loop.body
    return operands[buffer.arg_number] if inside else op.regions[1].outer(buffer)
