"""Write checkpoints into a function: parts of a block, and blocks of the iterations of a loop.

Both become calls of functions marked as those of `jax.checkpoint` are: reverse mode keeps their
arguments, and runs them again. So a schedule that saves memory is IR that derivatives know anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pullback import _jax
from pullback._jax import ir, remat
from pullback.autodiff.state import Differentiation
from pullback.ir import build, loop_carries
from pullback.ir.build import Value
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.purity import is_used
from pullback.ir.regions import blocks, captured_by, operations, replace_op
from pullback.ir.signatures import set_signature
from pullback.ir.stacks import Stack, affine, is_one_slot, stacks_of
from pullback.ir.while_loops import Loop, read_loop
from pullback_runtime.ir._erasure import erase, spare

GUARDED = "pullback.guarded"
"""Attribute of a checkpoint that is written here, whose effects happen in its first run only: the
positions of the arguments that reverse mode copies before the second, or XLA merges the two."""


def outline(diff: Differentiation, inner: Sequence[Any], varying: set[Value] | None = None) -> None:
    """Move ops of one block into a checkpoint, which is called in the place of the last one.

    The ops stand in their order, and no op between them uses their results.

    Args:
      varying: the values of the block that are computed in it, to which those are added that stand
        for them in the function; None in the body of a loop. The reverse of that is another loop,
        while XLA would merge two runs of other ops.
    """
    place, loc = ir.InsertionPoint.after(inner[-1]), inner[-1].location
    symbol, block = diff.add_function("segment", [], [], loc)
    for operation in inner:
        block.append(operation)
    results = {r: _uses_outside(r, block) for operation in inner for r in operation.results}
    results = {r: uses for r, uses in results.items() if uses}
    with build.inserting(place, loc):
        found = _call_checkpoint(diff, symbol, block, list(results))
    for new, uses in zip(found, results.values(), strict=True):
        for use in uses:
            use.owner.operands[use.operand_number] = new
    if varying is not None and found:
        pairs = list(zip(found[0].owner.operands, block.arguments, strict=True))
        guarded = [i for i, (v, _) in enumerate(pairs) if v in varying]
        varying.update(found, (pairs[i][1] for i in guarded))
        _guard(diff.function(symbol), guarded or range(len(pairs)))


def _guard(function: Any, positions: Iterable[int]) -> None:
    found = list(map(build.i64, positions))
    function.attributes[GUARDED] = ir.ArrayAttr.get(found, _jax.context())


def _uses_outside(v: Value, block: Any) -> list[Any]:
    return [use for use in v.uses if not _is_below(use.owner, block)]


def _is_below(operation: Any, block: Any) -> bool:
    """Return True if an op is in the function of a block."""
    operation = operation.operation
    while operation is not None and operation.name != "func.func":
        operation = operation.parent and operation.parent.operation
    return bool(operation == block.owner.operation)


def _call_checkpoint(
    diff: Differentiation, symbol: str, block: Any, results: Sequence[Value]
) -> list[Value]:
    """Complete a function whose block has only ops yet, and call it here; return the results.

    What it uses from outside becomes its arguments; constants are cloned into it.
    """
    loc = build.here.loc
    captured = captured_by([block])
    operands = []
    for v in captured:
        if build.is_constant(v):
            new = v.owner.clone(ir.InsertionPoint.at_block_begin(block)).result
        else:
            new = block.add_argument(v.type, loc)
            operands.append(v)
        for use in [use for use in v.uses if _is_below(use.owner, block)]:
            use.owner.operands[use.operand_number] = new
    with build.inserting(ir.InsertionPoint(block), loc):
        build.emit("func.return", (), results)
    function = diff.function(symbol)
    set_signature(function)
    function.attributes[remat.CHECKPOINT] = ir.UnitAttr.get(_jax.context())
    _guard(function, ())
    return list(build.call(symbol, operands, [r.type for r in results]).results)


def split(diff: Differentiation, operation: Any, lengths: Sequence[int]) -> None:
    """Replace a loop of known trip count by a loop over checkpoints of `lengths[0]` iterations.

    Each of these has a loop, which is split by the further lengths in turn. What is left over comes
    in a last checkpoint, after the loop. An input of which each iteration reads a row of its own
    is cut, too, and so is a stack that each iteration writes one into.
    """
    for inner, count in _Blocks(diff, operation, lengths[0]).run():
        rest = [length for length in lengths[1:] if length < count]
        if rest:
            split(diff, inner, rest)


@dataclass(frozen=True)
class Read:
    """A row of an array from outside of a loop: iteration i reads `first + step * i`."""

    operation: Any
    array: Value
    first: int
    step: int


def reads_of(loop: Loop) -> Iterator[Read]:
    """Yield the reads of a loop's body, each of which passes through rows next to each other."""
    assert loop.trip_count is not None
    inside = set(loop.body.arguments)
    for operation in operations(loop.body):
        inside.update(operation.results)
        if operation.name != "stablehlo.dynamic_slice":
            continue
        array, *starts = operation.operands
        if array in inside:
            index = array.arg_number if array in loop.body.arguments else -1
            if index < 0 or not loop.is_invariant(index):
                continue
            array = loop.inits[index]
        dims = build.shape(array)
        if is_one_slot(dims, build.shape(operation.result), starts):
            ends = _ends(loop, starts[0])
            if ends is not None and min(ends) >= 0 and max(ends) < dims[0]:
                yield Read(operation, array, ends[0], 1 if ends[0] <= ends[1] else -1)


def _ends(loop: Loop, index: Value) -> tuple[int, int] | None:
    """Return the first and the last value of an index that goes one up, or down, at a time."""
    count = loop.trip_count or 0
    for counter in loop.counters:
        ends = counter.start, counter.start + counter.step * (count - 1)
        found = affine(index, loop.body.arguments[counter.index], ends)
        if found is not None and abs(found[1] - found[0]) == count - 1:
            return found
    return None


def state_of(loop: Loop, stacks: Collection[int]) -> list[int]:
    """Return the carries that an iteration takes from the one before, but for counters."""
    others = {*stacks, *(counter.index for counter in loop.counters)}
    return [i for i in range(len(loop.inits)) if i not in others and not loop.is_invariant(i)]


class _Blocks:
    """The rewriting of one loop into a loop over blocks of `length` iterations."""

    def __init__(self, diff: Differentiation, operation: Any, length: int) -> None:
        self.diff, self.operation, self.length = diff, operation, length
        self.loop = read_loop(operation)
        self.count = self.loop.trip_count or 0
        self.stacks = {stack.carry: stack for stack in stacks_of(self.loop)}
        self.state = state_of(self.loop, self.stacks)
        self.integer = build.scalar("i32" if self.count < 2**31 else "i64")
        self.inner: list[tuple[Any, int]] = []

    def run(self) -> list[tuple[Any, int]]:
        """Replace the loop; return the loops in the checkpoints, with their trip counts."""
        whole, rest = divmod(self.count, self.length)
        loop = self.loop
        with build.inserting(ir.InsertionPoint(self.operation), self.operation.location):
            carried = self._outer(whole, {i: loop.inits[i] for i in (*self.state, *self.stacks)})
            if rest:
                carried = self._block(whole * self.length, rest, carried, {})
            results = [carried.get(i, v) for i, v in enumerate(loop.inits)]
            for each in loop.counters:
                if is_used(self.operation.results[each.index]):
                    type = results[each.index].type
                    end = build.wrapped(type, each.start + each.step * self.count)
                    results[each.index] = build.full(type, end)
        replace_op(self.operation, results)
        return self.inner

    def _outer(self, whole: int, carried: dict[int, Value]) -> dict[int, Value]:
        """Emit the loop over whole blocks; a stack that they fill has a slot for each of them."""
        shapes = {
            i: build.shape(carried[i])
            for i, stack in self.stacks.items()
            if stack.slots == whole * self.length
        }
        inits = dict(carried)
        for i, (_, *dims) in shapes.items():
            inits[i] = build.reshape(carried[i], (whole, self.length, *dims))
        loop, cond, body = build.while_([build.full(self.integer, 0), *inits.values()])
        with build.inserting(ir.InsertionPoint(cond)):
            build.return_([build.compare("LT", cond.arguments[0], whole)])
        with build.inserting(ir.InsertionPoint(body)):
            number, *values = body.arguments
            slots = {i: _row(number, _step(self.stacks[i]), whole) for i in shapes}
            first = build.mul(number, self.length)
            found = self._block(first, self.length, dict(zip(inits, values, strict=True)), slots)
            build.return_([build.add(number, 1), *found.values()])
        results = dict(zip(inits, list(loop.results)[1:], strict=True))
        return results | {i: build.reshape(results[i], shape) for i, shape in shapes.items()}

    def _block(
        self, first: Value | int, length: int, carried: dict[int, Value], slots: dict[int, Value]
    ) -> dict[int, Value]:
        """Emit iterations `first` to `first + length - 1` as a checkpoint; return the carries.

        Args:
          carried: the state and the stacks.
          slots: where the block's part of a stack goes, if that has a slot for each block.
        """
        if isinstance(first, int):
            first = build.full(self.integer, first)
        copy = spare(self.operation)
        reads = list(reads_of(read_loop(copy)))
        rows = []
        for read in reads:
            dims = build.shape(read.array)[1:]
            at = self._first_row(read.first, read.step, first, length)
            sizes = length, *dims
            rows.append(build.dynamic_slice(read.array, _first_of_rest(at, sizes), sizes))
        symbol, function = self.diff.add_function("block", [], [], build.here.loc)
        with build.inserting(ir.InsertionPoint(function)):
            buffers = [
                build.zeros(build.with_shape(v.type, (length, *build.shape(v)[1:])))
                for v in (self.loop.inits[i] for i in self.stacks)
            ]
            inits = [build.full(self.integer, 0), *(carried[i] for i in self.state), *buffers]
            loop, cond, body = build.while_(inits)
            with build.inserting(ir.InsertionPoint(cond)):
                build.return_([build.compare("LT", cond.arguments[0], length)])
            self._fill(body, blocks(copy)[1], first, length, zip(reads, rows, strict=True))
        erase(copy)
        erase_dead_ops(body, self.diff.functions)
        self.inner.append((loop, length))
        results = _call_checkpoint(self.diff, symbol, function, list(loop.results)[1:])
        found = dict(zip((*self.state, *self.stacks), results, strict=True))
        for i, stack in self.stacks.items():
            if i in slots:
                found[i] = loop_carries.write(carried[i], found[i], slots[i])
            else:
                at = self._first_row(stack.first, _step(stack), first, length)
                starts = _first_of_rest(at, build.shape(found[i]))
                found[i] = build.dynamic_update_slice(carried[i], found[i], starts)
        return {i: found[i] for i in carried}

    @staticmethod
    def _first_row(row: int, step: int, first: Value, length: int) -> Value:
        """Return the lowest row of a block: iteration i has row `row + step * i`."""
        if step < 0:
            return build.sub(build.integer(row - (length - 1), first), first)
        return build.add(first, build.integer(row, first)) if row else first

    def _fill(self, new: Any, body: Any, first: Value, length: int, reads: Any) -> None:
        """Move the ops of the old body into that of the loop of a block, and let it read parts."""
        number, *values = new.arguments
        state = dict(zip((*self.state, *self.stacks), values, strict=True))
        with build.inserting(ir.InsertionPoint(new), self.operation.location):
            now = build.add(first, number)
            for read, rows in reads:
                at = _row(number, read.step, length)
                dims = build.shape(read.operation.result)
                row = build.dynamic_slice(rows, _first_of_rest(at, dims), dims)
                read.operation.result.replace_all_uses_with(row)
            for each in self.loop.counters:
                state[each.index] = self._counter(each, now)
            for i, argument in enumerate(body.arguments):
                argument.replace_all_uses_with(state.get(i, self.loop.inits[i]))
            *inner, end = operations(body)
            yields = list(end.operands)
            for operation in inner:
                new.append(operation)
            found = [yields[i] for i in self.state]
            for i, stack in self.stacks.items():
                row = yields[i].owner.operands[1]
                at = _first_of_rest(_row(number, _step(stack), length), build.shape(row))
                found.append(build.dynamic_update_slice(state[i], row, at))
            build.return_([build.add(number, 1), *found])

    def _counter(self, counter: Any, now: Value) -> Value:
        """Return what a counter of the loop is in iteration `now`."""
        type = self.loop.inits[counter.index].type
        i = build.convert(now, build.info(type).element)
        if abs(counter.step) != 1:
            i = build.mul(i, build.integer(build.wrapped(type, abs(counter.step)), i))
        start = build.integer(counter.start, i)
        return build.sub(start, i) if counter.step < 0 else build.add(start, i)


def _step(stack: Stack) -> int:
    return 1 if stack.first <= stack.last else -1


def _row(number: Value, step: int, count: int) -> Value:
    """Return the row of iteration `number` of so many, the first one last for step -1."""
    return number if step > 0 else build.sub(build.integer(count - 1, number), number)


def _first_of_rest(row: Value, dims: Sequence[int]) -> list[Value]:
    """Return the start of a part that has these dimensions, all of them but for rows."""
    return [row] + [build.integer(0, row)] * (len(dims) - 1)
