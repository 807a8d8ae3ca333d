"""Recognize carries that a loop only stacks into: each iteration writes one slot and reads none.

The outputs of a scan are such carries. In reverse mode their cotangent is not carried: iteration i
reads slot i of it. And a residual that is stacked anyway needs no second buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback._jax import ir
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.while_loops import Counter, Loop, integer_constant


@dataclass(frozen=True)
class Stack:
    """dynamic_update_slice(carry, update, [slot, 0, …]), slots `first` to `last` in steps of 1.

    `count` is the largest number of slots written, `slots` that of the buffer.
    """

    carry: int
    update: Value
    first: int
    last: int
    count: int
    slots: int

    def read(self, buffer: Value, iteration: Value) -> Value:
        """Read the slot of one iteration, in the shape of the update."""
        if self.last < self.first:
            slot = build.sub(build.integer(self.first, iteration), iteration)
        else:
            slot = build.add(iteration, self.first) if self.first else iteration
        sizes = build.shape(self.update)
        zero = build.integer(0, iteration)
        return build.dynamic_slice(buffer, [slot] + [zero] * (len(sizes) - 1), sizes)

    def without_written(self, ct: Value) -> Value | None:
        """Return the initial buffer's cotangent: the final one's, zero in written slots."""
        if self.count == self.slots:
            return None
        dims = build.shape(ct)[1:]
        blank = build.zeros(build.with_shape(ct.type, (self.count, *dims)))
        i32 = build.scalar("i32")
        lowest = build.full(i32, min(self.first, self.last))
        starts = [lowest] + [build.full(i32, 0)] * len(dims)
        return build.dynamic_update_slice(ct, blank, starts)


def stacks_of(loop: Loop) -> list[Stack]:
    """Return all carries that are stacks, for a loop with counters and a bound on its trips."""
    count = loop.slots
    if not count:
        return []
    found: dict[int, Stack | None] = {}
    for counter in loop.counters:
        if _is_exact(loop, counter, count):
            for i in range(len(loop.yields)):
                found[i] = found.get(i) or _stack(loop, counter, count, i)
    return [stack for stack in found.values() if stack is not None]


def _is_exact(loop: Loop, counter: Counter, count: int) -> bool:
    """Return True if the counter does not wrap around before the last possible iteration."""
    last = counter.start + counter.step * (count - 1)
    return build.holds(loop.body.arguments[counter.index].type, last)


def _stack(loop: Loop, counter: Counter, count: int, index: int) -> Stack | None:
    result, argument = loop.yields[index], loop.body.arguments[index]
    if isinstance(result, ir.BlockArgument):
        return None
    operation = result.owner
    if operation.name != "stablehlo.dynamic_update_slice" or operation.operands[0] != argument:
        return None
    if uses(argument) != 1 or uses(result) != 1:
        return None
    _, update, *starts = operation.operands
    if not is_one_slot(build.shape(argument), build.shape(update), starts):
        return None
    slots = _slots(loop, counter, count, starts[0])
    size = build.shape(argument)[0]
    if slots is None or min(slots) < 0 or max(slots) >= size:
        return None
    return Stack(index, update, *slots, count, size)


def uses(v: Value) -> int:
    """Return how often a value is used."""
    return sum(1 for _ in v.uses)


def is_one_slot(big: tuple[int, ...], small: tuple[int, ...], starts: Sequence[Value]) -> bool:
    """Return True if a part is one index of a buffer's first dimension, and all of the others."""
    if not big or small != (1, *big[1:]):
        return False
    return all(integer_constant(v) == 0 for v in starts[1:])


def _slots(loop: Loop, counter: Counter, count: int, index: Value) -> tuple[int, int] | None:
    """Return the first and the last slot if the loop writes slots next to each other."""
    ends = counter.start, counter.start + counter.step * (count - 1)
    found = affine(index, loop.body.arguments[counter.index], ends)
    return found if found is not None and abs(found[1] - found[0]) == count - 1 else None


def affine(v: Value, counter: Value, ends: tuple[int, int]) -> tuple[int, int] | None:
    """Return the values of `v` at both ends of a counter's range; None if not seen to be affine.

    It is not where the counter, or a value on the way, wraps around.
    """
    if v == counter:
        return ends if all(build.holds(v.type, end) for end in ends) else None
    constant = integer_constant(v)
    if constant is not None:
        return constant, constant
    if isinstance(v, ir.BlockArgument):
        return None
    found = _affine_op(v.owner, counter, ends)
    wraps = found is not None and not all(build.holds(v.type, end) for end in found)
    return None if wraps else found


def _affine_op(operation: Any, counter: Value, ends: tuple[int, int]) -> tuple[int, int] | None:
    if operation.name == "stablehlo.convert":
        return affine(operation.operands[0], counter, ends)
    if operation.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = (affine(x, counter, ends) for x in operation.operands)
    if left is None or right is None:
        return None
    sign = 1 if operation.name == "stablehlo.add" else -1
    return left[0] + sign * right[0], left[1] + sign * right[1]


def aliases(stacks: list[Stack]) -> dict[Value, Stack]:
    """Return the stack of each value of the body that one holds: its update, and reshapes of it."""
    found: dict[Value, Stack] = {}
    for stack in stacks:
        v = stack.update
        found[v] = stack
        while not isinstance(v, ir.BlockArgument) and _is_reshape(v.owner):
            v = v.owner.operands[0]
            found[v] = stack
    return found


def _is_reshape(operation: Any) -> bool:
    """Return True for a reshape, or a broadcast that only adds dimensions of size 1."""
    if operation.name == "stablehlo.reshape":
        return True
    if operation.name != "stablehlo.broadcast_in_dim":
        return False
    small, big = build.shape(operation.operands[0]), build.shape(operation.results[0])
    dims = build.integers(operation.attributes["broadcast_dimensions"])
    return list(dims) == sorted(dims) and [d for d in big if d != 1] == [d for d in small if d != 1]
