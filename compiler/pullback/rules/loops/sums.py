"""Replace sums of products that a reverse loop accumulates by one product after the loop.

The cotangent of a loop-invariant value is a sum over iterations: for the weights of a recurrent
network, one of products a_t · b_t that are much larger than a_t and b_t. The cotangent of a value
that the loop reads slot by slot is b_t · w in each slot. In the loop these are many small products,
and the former read and write the whole sum in each iteration. So the loop stacks b instead; a is
most often a residual, which is stacked already. After the loop, a sum over iterations is a product
that contracts over them too, and slots are a product that has them as one more dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback._jax import ir
from pullback.autodiff.batch_rules import BATCHES, MappedOp, shifted
from pullback.autodiff.zeros import is_zero_constant
from pullback.ir import build, loop_carries as slots
from pullback.ir.build import Value
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.regions import blocks, remade, replace_terminator, terminator
from pullback.ir.stacks import affine, is_one_slot, uses
from pullback.rules import products
from pullback.rules.body_patterns import body_name
from pullback_runtime.ir._erasure import erase, erase_arguments

MUCH_LARGER = 4
"""How much larger a sum has to be than what is stacked for it, to be worth the memory."""

_ADD, _PRODUCT, _REDUCTION = "stablehlo.add", "stablehlo.dot_general", "stablehlo.reduce"
_SLICE, _UPDATE = "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"
_VIEWS = "stablehlo.reshape", "stablehlo.transpose"


@dataclass(frozen=True)
class Slots:
    """A buffer with one slot per iteration, the last iteration first, or last if `reversed`."""

    buffer: Value
    shape: tuple[int, ...]
    reversed: bool

    def in_order(self, stack: Value) -> Value:
        """Turn the order of iterations into that of slots, or back."""
        if not self.reversed:
            return stack
        return build.emit1(
            "stablehlo.reverse", stack.type, [stack], {"dimensions": build.i64s((0,))}
        )


@dataclass(frozen=True)
class Summand:
    """A value that each iteration adds to a carry.

    Attributes:
      index: the carry.
      slots: those of the carry, if the summand is added to one of them.
      addition: the op that adds.
      source: the value that the summand is a view of.
      views: linear ops between the two, the last one first.
    """

    index: int
    slots: Slots | None
    addition: Any
    source: Value
    views: Sequence[Any]


Total = Callable[[], Value]
"""Emits what the sources of a summand are in all iterations: summed, or stacked if in slots."""


class Sums:
    """The sums that a reverse loop accumulates.

    Args:
      loop: the while; its first carry counts 0, 1, … below `size`.
      iteration: in its body, that of the primal loop: size - 1, …, 1, 0.
    """

    def __init__(self, loop: Any, iteration: Value, size: int) -> None:
        self.loop, self.iteration, self.size = loop, iteration, size
        self.body = blocks(loop)[1]
        self.inside: set[Value] = set(self.body.arguments)
        self.read: dict[Value, Slots] = {}
        self.new: dict[Value, Any] = {}  # what the loop shall stack; in the end, the stacks
        self.room = 0  # bytes that an iteration reads of stacks: no more is to be added
        for view in self.body.operations:
            self._note(view.operation)

    def put_behind(self, functions: dict[str, Any]) -> list[Value]:
        """Move sums after the loop where that pays; return what replaces its results."""
        found = [each for i in range(1, len(self.loop.results)) for each in self._summands(i)]
        totals: dict[int, Total] = {}
        for find in (self._product, self._sum):  # the latter of what is stacked for the former
            for i, each in enumerate(found):
                if i not in totals and (total := find(each)) is not None:
                    totals[i] = total
        if not totals:
            return list(self.loop.results)
        for i in totals:
            self._drop(found[i])
        results = self._rebuilt()
        for i, total in totals.items():
            index = found[i].index
            results[index] = build.add(results[index], self._shown(found[i], total()))
        erase_dead_ops(self.body, functions)
        return results

    # ------------------------------------------------------------------------- finding

    def _note(self, operation: Any) -> None:
        """Record what the body reads from stacks, and reshapes of it."""
        self.inside.update(operation.results)
        if operation.name == _SLICE and operation.operands[0] not in self.inside:
            found = self._slots(*operation.operands, part=operation.result)
            if found is not None:
                self.read[operation.result] = found
                self.room += build.size_in_bytes(operation.result.type)
        elif operation.name == "stablehlo.reshape" and operation.operands[0] in self.read:
            self.read[operation.result] = self.read[operation.operands[0]]

    def _slots(self, buffer: Value, *starts: Value, part: Value) -> Slots | None:
        """Return a buffer's slots if `part` is one of them, another in each iteration."""
        dims, last = build.shape(buffer), self.size - 1
        if not is_one_slot(build.shape(buffer), build.shape(part), starts) or dims[0] != self.size:
            return None
        ends = affine(starts[0], self.body.arguments[0], (0, last))
        if ends not in ((0, last), (last, 0)):
            return None
        return Slots(buffer, dims, ends == (0, last))

    def _summands(self, index: int) -> list[Summand]:
        """Return what the body adds to a carry or to a slot of it; [] if it does more with it."""
        first, v = self.body.arguments[index], terminator(self.body).operands[index]
        of = None
        if uses(v) == 1 and build.is_result_of(v, _UPDATE):
            carry, part, *starts = v.owner.operands
            of = self._slots(carry, *starts, part=part) if carry == first else None
            slot = _read_for(v.owner.operation) if of is not None else None
            if slot is None:
                return []
            first, v = slot, part
        found = []
        while v != first and uses(v) == 1 and build.is_result_of(v, _ADD):
            addition = v.owner.operation
            v, term = addition.operands
            found.append(Summand(index, of, addition, *_shown_by(term)))
        return found if v == first and uses(v) == 1 else []

    def _product(self, summand: Summand) -> Total | None:
        """Return the total of a product whose factors are stacked, or can be within the room.

        New stacks must be much smaller than the sum, or no larger than a slot. For slots, one
        factor must be the same in all iterations.
        """
        if not build.is_result_of(summand.source, _PRODUCT):
            return None
        operation = summand.source.owner.operation
        factors = list(operation.operands)
        outside = [v not in self.inside for v in factors]
        if outside.count(True) != (0 if summand.slots is None else 1):
            return None
        varying = dict.fromkeys(v for v, same in zip(factors, outside, strict=True) if not same)
        missing = [v for v in varying if v not in self.read and v not in self.new]
        size = sum(build.size_in_bytes(v.type) for v in missing)
        total = build.size_in_bytes(summand.source.type)
        if size > min(self.room, total if summand.slots is not None else total // MUCH_LARGER):
            return None
        if any(-1 in build.shape(v) for v in missing):
            return None
        self.room -= size
        self.new.update(dict.fromkeys(missing))
        if summand.slots is None:
            return lambda: products.summed(operation, *map(self._stack, factors))
        return lambda: self._mapped(operation, factors)

    def _sum(self, summand: Summand) -> Total | None:
        """Return the total of a value that is stacked for products, or of a reduction of one."""
        if summand.slots is not None:
            return None
        if summand.source in self.new:
            return lambda: self._reduced(summand.source, ())
        if not build.is_result_of(summand.source, _REDUCTION):
            return None
        operation = summand.source.owner.operation
        v, init, *more = operation.operands
        adds = body_name(operation.regions[0]) == _ADD and is_zero_constant(init)
        if more or v not in self.new or not adds:
            return None
        dims = build.integers(operation.attributes["dimensions"])
        return lambda: self._reduced(v, dims)

    # ------------------------------------------------------------------------ emitting

    def _drop(self, summand: Summand) -> None:
        """Remove an addition from the body; a slot to which nothing is added is not written."""
        sum_, rest = summand.addition.result, summand.addition.operands[0]
        sum_.replace_all_uses_with(rest)
        self._erase(summand.addition)
        update = next(iter(rest.uses)).owner
        if summand.slots is not None and _read_for(update.operation) == rest:
            update.result.replace_all_uses_with(update.operands[0])
            self._erase(update.operation)
            self._erase(rest.owner.operation)

    def _erase(self, operation: Any) -> None:
        self.inside.difference_update(operation.results)
        erase(operation)

    def _rebuilt(self) -> list[Any]:
        """Replace the loop by one that stacks and has no idle carries; return the old results.

        A result is None if its carry stayed zero: its value is computed after the loop.
        """
        end = terminator(self.body)
        given, arguments, yields = (
            list(vs) for vs in (self.loop.operands, self.body.arguments, end.operands)
        )
        idle = [i for i, v in enumerate(arguments) if yields[i] == v and uses(v) == 1]
        kept = [i for i in range(len(given)) if i not in idle]
        inits = [given[i] for i in kept]
        inits += [slots.buffer_of(v, self.size) for v in self.new]
        types = [v.type for v in inits]
        new = remade(self.loop, types, inits)
        self.body = blocks(new)[1]  # what we had of it is of the loop that goes
        for block in blocks(new):
            for type in types[len(kept) :]:
                block.add_argument(type, self.loop.location)
        with build.inserting(ir.InsertionPoint(end), end.location):
            buffers = list(self.body.arguments)[len(given) :]
            pairs = zip(buffers, self.new, strict=True)
            written = [slots.write(buffer, v, self.iteration) for buffer, v in pairs]
        replace_terminator(self.body, [*(yields[i] for i in kept), *written])
        self.inside.difference_update(arguments[i] for i in idle)
        for block in blocks(new):
            erase_arguments(block, idle)
        erase(self.loop)
        results = list(new.results)
        self.new = dict(zip(self.new, results[len(kept) :], strict=True))
        by_index = dict(zip(kept, results, strict=False))
        by_index |= {i: None if is_zero_constant(given[i]) else given[i] for i in idle}
        return [by_index[i] for i in range(len(given))]

    def _stack(self, v: Value) -> Value:
        """Return the stack of a body's value over all iterations."""
        if v in self.new:
            return self.new[v]
        of = self.read[v]
        return build.reshape(of.in_order(of.buffer), (self.size, *build.shape(v)))

    def _mapped(self, operation: Any, operands: Sequence[Value]) -> Value:
        """Emit the op once for all iterations."""
        batched = [v in self.inside for v in operands]
        values = [self._stack(v) if b else v for v, b in zip(operands, batched, strict=True)]
        return self._batch(operation, values, batched)

    def _batch(self, operation: Any, values: list[Value], batched: list[bool]) -> Value:
        types = [operation.result.type]
        mapped = MappedOp(operation.name, operation, values, batched, types, frame=self)
        found: Any = BATCHES[operation.name](mapped)
        return found[0] if isinstance(found, list) else found

    def _reduced(self, v: Value, dims: Sequence[int]) -> Value:
        return build.reduce(self.new[v], 0, (0, *shifted(dims)), _ADD)

    def _shown(self, summand: Summand, total: Value) -> Value:
        """Apply the views of a summand to the total of its source."""
        for view in reversed(summand.views):
            if summand.slots is None:
                total = build.clone(view, [total]).result
            else:
                total = self._batch(view, [total], [True])
        if summand.slots is None:
            return total
        return summand.slots.in_order(build.reshape(total, summand.slots.shape))


def _read_for(update: Any) -> Value | None:
    """Return the read of the slot that an update writes, if that is its only user; else None."""
    if update.name != _UPDATE:
        return None
    carry, _, *starts = update.operands
    users = [use.owner.operation for use in carry.uses]
    if len(users) != 2:
        return None
    reading = next((user for user in users if user.name == _SLICE), None)
    if reading is None or list(reading.operands) != [carry, *starts]:
        return None
    return reading.result


def _shown_by(v: Value) -> tuple[Value, list[Any]]:
    """Return the value that views such as reshapes start from, and the views."""
    views = []
    while build.is_result_of(v, *_VIEWS):
        views.append(v.owner.operation)
        v = v.owner.operands[0]
    return v, views
