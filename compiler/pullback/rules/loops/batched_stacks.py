"""Batch what a loop reads or writes slot by slot: with leading slots, then the batch axis.

Elsewhere the batch axis comes before all others. The slots of one iteration would then be a
column: XLA reads it with strides, and reverse mode, which recognizes a stack by its leading slots,
would carry the cotangent of all of it. So the loop has `rows`, (slots, batch, …), and a transpose
at both ends.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from pullback.autodiff.batch_rules import MappedOp
from pullback.autodiff.zeros import is_zero_constant
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.purity import is_used
from pullback.ir.regions import block_of, blocks, captured_by, terminator
from pullback.ir.stacks import is_one_slot
from pullback.ir.while_loops import read_loop

SLICE, UPDATE = "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"


class Rows:
    """The carries and captured values that are rows, (slots, batch, …), in a batched loop.

    Attributes:
      flags: which carries are batched.
      carries: which of them are rows; none in a loop in which each item ends by itself, where a
        select goes over all carries.
      sources: batched values that the body only reads slots of, by the captured values or invariant
        carries that they stand for; the body has them as rows as well.
    """

    def __init__(self, op: MappedOp, flags: Sequence[bool], apart: bool) -> None:
        self.op = op
        self.flags = flags
        self.loop = read_loop(op.operation)
        self.cond, self.body = blocks(op.operation)
        self.carries = [False] * len(flags)
        self.sources: dict[Value, Value] = {}
        if apart or not self.loop.slots:
            return
        self.carries = [flag and self._is_carry(i) for i, flag in enumerate(flags)]
        outside = {v: op.frame.values.get(v) for v in captured_by([self.body])}
        for i in itertools.compress(range(len(flags)), flags):
            if self.loop.is_invariant(i):
                outside[self.body.arguments[i]] = op.operand(i)
        self.sources = {v: x for v, x in outside.items() if x is not None and self._is_read(v)}

    @functools.cached_property
    def _batched(self) -> set[Value]:
        """The values of the body that depend on the batch; computed when a slot is looked for."""
        found = {*self.op.frame.values, *itertools.compress(self.body.arguments, self.flags)}
        self.op.frame.batching.block_flags(self.body, found)
        return found

    def _is_carry(self, index: int) -> bool:
        """Return True if the body does nothing with a carry but write and read slots of it."""
        argument = self.body.arguments[index]
        if self.loop.is_invariant(index) or is_used(self.cond.arguments[index]):
            return False
        if not self._has_slots(argument):
            return False
        chain, ends = [argument], []
        for v in chain:
            for use in v.uses:
                user = use.owner.operation
                if user == terminator(self.body):
                    ends.append(use.operand_number)
                elif use.operand_number or not self._is_slot(user):
                    return False
                elif user.name == UPDATE:
                    chain.append(user.results[0])
        return ends == [index]

    def _is_read(self, v: Value) -> bool:
        if not self._has_slots(v):
            return False
        users = ((use.operand_number, use.owner.operation) for use in v.uses)
        return any(not n and user.name == SLICE and self._is_slot(user) for n, user in users)

    def _has_slots(self, v: Value) -> bool:
        """Return True if the loop has about as many iterations as the value has slots."""
        dims, count = self._shape(v), self.loop.slots or 0
        return bool(dims) and 1 < dims[0] <= 2 * count

    def _is_slot(self, user: Any) -> bool:
        """Return True if an op of the body reads or writes one slot, the same one of each item."""
        if user.name not in (SLICE, UPDATE) or block_of(user) != self.body:
            return False
        buffer, *rest = user.operands
        part, starts = (user.results[0], rest) if user.name == SLICE else (rest[0], rest[1:])
        shapes = self._shape(buffer), self._shape(part)
        return is_one_slot(*shapes, starts) and starts[0] not in self._batched

    def _shape(self, v: Value) -> tuple[int, ...]:
        """Return the shape of one item; values from around the loop may be batched already."""
        dims, values = build.shape(v), self.op.frame.values
        return dims[1:] if v in values and values[v] == v else dims

    def take(self, frame: Any, block: Any) -> None:
        """Give the arguments of a block of the loop their batched types."""
        plain = [f and not is_row for f, is_row in zip(self.flags, self.carries, strict=True)]
        frame.take(block.arguments, plain)
        for argument in itertools.compress(block.arguments, self.carries):
            slots, *rest = build.shape(argument)
            argument.set_type(build.with_shape(argument.type, (slots, frame.size, *rest)))
            frame.values[argument] = frame.rows[argument] = argument

    def read(self, frame: Any) -> None:
        """Add the sources as rows, which are made here, to the frame that batches the body."""
        frame.rows |= {v: swapped(x) for v, x in self.sources.items()}

    def inits(self) -> list[Value]:
        """Return the initial values of the batched loop."""
        return [self._init(i) for i in range(len(self.flags))]

    def _init(self, i: int) -> Value:
        v = self.op.values[i]
        if not self.carries[i]:
            return self.op.operand(i) if self.flags[i] else v
        if self.op.batched[i]:
            return swapped(v)
        slots, *rest = build.shape(v)
        shape = (slots, self.op.size, *rest)
        if is_zero_constant(v):  # and is seen to be: what is added to a slot of it is what it holds
            return build.zeros(build.with_shape(v.type, shape))
        return build.broadcast_in_dim(v, shape, (0, *range(2, 2 + len(rest))))

    def results(self, results: Sequence[Value]) -> list[Value]:
        """Return the loop's results with a leading batch axis."""
        pairs = zip(results, self.carries, strict=True)
        return [swapped(v) if is_row else v for v, is_row in pairs]


def swapped(v: Value) -> Value:
    """Swap the first two dimensions."""
    return build.permute(v, (1, 0, *range(2, build.rank(v))))


def read_slot(op: MappedOp) -> Value | None:
    """Batch a `dynamic_slice` that reads a slot of rows: (batch, 1, …); None for others."""
    v, *starts = op.operation.operands
    rows, part = op.frame.rows.get(v), build.shape_of(op.results[0])
    if rows is None:
        return None
    only_rows = op.frame.values[v] == rows
    if not only_rows and (any(op.batched[1:]) or not is_one_slot(op.shape(0), part, starts)):
        return None
    one, *rest = part
    part = build.dynamic_slice(rows, _starts(op.values[1:]), (one, op.size, *rest))
    return build.reshape(part, (op.size, one, *rest))


def write_slot(op: MappedOp) -> Value | None:
    """Batch a `dynamic_update_slice` of rows: write a slot of all items; return None for others."""
    v = op.operation.operands[0]
    rows = op.frame.rows.get(v)
    if rows is None or op.frame.values[v] != rows:  # what is captured is not written to in place
        return None
    update = op.operand(1)
    size, one, *rest = build.shape(update)
    update = build.reshape(update, (one, size, *rest))
    new = build.dynamic_update_slice(rows, update, _starts(op.values[2:]))
    op.frame.rows[op.operation.results[0]] = new
    return new


def _starts(starts: Sequence[Value]) -> list[Value]:
    slot, *zeros = starts
    return [slot, build.integer(0, slot), *zeros]
