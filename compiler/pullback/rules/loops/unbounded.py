"""Differentiate loops of unbounded trip count in reverse mode, in fixed memory.

The primal loop counts its n iterations. The reverse loop needs the carry at iteration n - 1, n - 2,
…, 0: it keeps checkpoints on a stack that starts with the first carry. To reach iteration t from
the checkpoint p on top, it advances half of the way, pushes a checkpoint there, and goes on from
it until p = t. The gap halves with each push, so UNBOUNDED_SLOTS checkpoints suffice for any n of
32 bits.

An effect happens in the primal loop alone, once in each iteration.

Memory: UNBOUNDED_SLOTS times the carry, whatever n is. Work: n steps of the body's vjp and about
n log2(n) / 2 further steps of the body. A bound given by the user buys n steps instead, for memory
proportional to the bound: see while_loop.py.

Source: A. Griewank, "Achieving logarithmic growth of temporal and spatial complexity in reverse
automatic differentiation", 1992; bisection instead of the binomial schedule, because n is only
known at run time and must not enter any shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback._jax import ir
from pullback.autodiff.effects import without_effects
from pullback.autodiff.functions import Constants, split
from pullback.autodiff.registry import Op, Tangents
from pullback.autodiff.state import Differentiation, call
from pullback.autodiff.zeros import stays_zero
from pullback.ir import build, loop_carries
from pullback.ir.build import Value
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.masks import mask_of
from pullback.ir.purity import is_used
from pullback.ir.regions import blocks, captures, operations, replace_terminator, terminator
from pullback.ir.signatures import set_signature
from pullback.ir.while_loops import UNBOUNDED_SLOTS
from pullback.rules.calls.func_call import before, scatter
from pullback_runtime.ir._erasure import erase, spare


def outline_body(diff: Differentiation, operation: Any, captured: Sequence[Value]) -> str:
    """Outline the body of a while as a function of its carries and of what it captures.

    Constants are cloned into it: a reduction in the body may capture a constant, but no argument.
    """
    copy = spare(operation)
    body = copy.regions[1].blocks[0]
    types = [v.type for v in (*body.arguments, *captured)]
    name, block = diff.add_function("while.body", types, [], operation.location)
    arguments = list(block.arguments)
    outside = dict(zip(captured, arguments[len(body.arguments) :], strict=True))
    for v in filter(build.is_constant, captured):
        outside[v] = v.owner.clone(ir.InsertionPoint(block)).result
    for old, new in zip(list(body.arguments), arguments, strict=False):
        old.replace_all_uses_with(new)
    _redirect(body, outside)
    operations = [view.operation for view in body.operations]
    results = list(operations[-1].operands)
    for inner in operations[:-1]:
        block.append(inner)
    erase(copy)
    ir.Operation.create(
        "func.return", operands=results, loc=operation.location, ip=ir.InsertionPoint(block)
    )
    set_signature(diff.function(name))
    return name


def _redirect(block: Any, outside: dict[Value, Value]) -> None:
    """Use `outside[v]` instead of `v`, in nested regions too."""
    for view in block.operations:
        operation = view.operation
        for i, v in enumerate(operation.operands):
            if v in outside:
                operation.operands[i] = outside[v]
        for region in operation.regions:
            for nested in region.blocks:
                _redirect(nested, outside)


def count_iterations(op: Op) -> None:
    """Give a while a carry that counts its iterations; it becomes the op's last result."""
    count = len(op.results)
    with before(op):
        new = loop_carries.widened(op.operation, [build.full(build.scalar("i32"), 0)])
    body = new.regions[1].blocks[0]
    end = terminator(body)
    with build.inserting(ir.InsertionPoint(end), end.location):
        counted = build.add(body.arguments[count], 1)
    replace_terminator(body, [*end.operands, counted])
    results = list(new.results)
    op.frame.replace(op, results[:count])
    op.operation, op.results = new, results


class Checkpointed:
    """A loop in reverse, with checkpoints.

    Args:
      op: the while.
      cts: cotangents of its results.
      carries: which carries are active; wanted: which of them a cotangent reaches.
      free: captured values that a cotangent reaches.
      invariant: which carries the body leaves as they are; they need no checkpoints.
    """

    def __init__(
        self,
        op: Op,
        cts: Tangents,
        carries: Sequence[bool],
        invariant: Sequence[bool],
        wanted: Sequence[int],
        free: Sequence[Value],
    ) -> None:
        self.op, self.cts, self.wanted, self.free = op, cts, list(wanted), list(free)
        self.frame, self.diff = op.frame, op.frame.diff
        self.diff.has_checkpoints = True
        self.captured = captures(op.operation)
        self.inits = list(op.operation.operands)
        self.size = len(self.inits)
        linear = self.frame.linear
        self.forward = [i for i in range(self.size) if not (linear and carries[i])]
        self.state = [i for i in self.forward if not invariant[i]]
        body = outline_body(self.diff, op.operation, self.captured)
        active = [*carries, *op.active[self.size :]]
        self.pair = split(
            self.diff,
            body,
            mask_of(active),
            mask_of([i in self.wanted for i in range(self.size)]),
            linear,
            self._zeros(active) if linear else (),
            types=op.wide,
        )
        forward = self.diff.function(self.pair.forward)  # with what rules do in it
        self.diff.check_runs_again(forward, "a loop without a bound")
        self.again = without_effects(self.diff, self.pair.forward)
        self.active = active

    def _zeros(self, active: Sequence[bool]) -> Constants:
        """Return the values of the loop that are always zero: a linear body may add them."""
        values, functions = [*self.op.results, *self.captured], self.diff.functions
        given = enumerate(zip(values, active, strict=True))
        return tuple((i, 0) for i, (v, a) in given if not a and stays_zero(v, functions))

    def run(self, count: Value) -> list[Value | None]:
        """Emit the reverse loop for `count` iterations; return cotangents of op.operands."""
        if not self.frame.linear:
            self._run_forward()
        pairs = zip(self.captured, self.active[self.size :], strict=True)
        outside = [v for v, active in pairs if not (self.frame.linear and active)]
        self.outside = list(map(self.frame.primal, outside))
        self.fixed = {i: self.frame.primal(self.inits[i]) for i in self.forward}
        start = [self.fixed[i] for i in self.state]
        i32 = build.scalar("i32")
        buffers = [
            loop_carries.write(loop_carries.buffer_of(v, UNBOUNDED_SLOTS), v, build.full(i32, 0))
            for v in start
        ]
        marks = build.full(build.tensor((UNBOUNDED_SLOTS,), build.info(i32).element), 0)
        cts = [self.op.instantiate(self.cts[i], self.op.results[i]) for i in self.wanted]
        accumulators = [self.op.instantiate(None, v) for v in self.free]
        accumulators = list(map(build.converted, accumulators, self._types_of_free()))
        inits = [build.sub(count, 1), build.full(i32, 0), marks, *buffers, *cts, *accumulators]
        loop, cond, body = build.while_(inits)
        with build.inserting(ir.InsertionPoint(cond)):
            build.return_([build.compare("GE", cond.arguments[0], 0)])
        with build.inserting(ir.InsertionPoint(body)):
            self._reverse_step(list(body.arguments))
        results = list(loop.results)[3 + len(buffers) :]
        found: list[Value | None] = [None] * self.size
        for i, ct in zip(self.wanted, results, strict=False):
            found[i] = ct
        by_value = dict(zip(self.free, results[len(self.wanted) :], strict=True))
        return found + [by_value.get(v) for v in self.captured]

    def _run_forward(self) -> None:
        """Let the primal loop, which counts by now, call the forward function in its body.

        The next derivative is then that of what rules compute forward. The ops of the old body are
        erased with their effects, which the forward function has as well.
        """
        body = blocks(self.op.operation)[1]
        *steps, end = operations(body)
        arguments = [*list(body.arguments)[: self.size], *self.captured]
        with build.inserting(ir.InsertionPoint(end), end.location):
            outs = call(self.diff, self.pair.forward, arguments)
        yields = list(end.operands)
        for i in self.state:
            yields[i] = outs[i]
        replace_terminator(body, yields)
        for step in reversed(steps):
            if not any(map(is_used, step.results)):
                erase(step)
        erase_dead_ops(body, self.diff.functions)

    def _reverse_step(self, arguments: list[Value]) -> None:
        t, top, marks, *rest = arguments
        buffers, cts = rest[: len(self.state)], rest[len(self.state) :]
        top, marks, buffers, state = self._seek(t, top, marks, buffers)
        carried, accumulators = cts[: len(self.wanted)], cts[len(self.wanted) :]
        results = call(self.diff, self.again, self._arguments(state))
        residuals = results[len(self.pair.kept) :]
        found = call(self.diff, self.pair.backward, [*residuals, *carried])
        spread = scatter(self.active, scatter(self.pair.nonzero, found))
        pairs = zip(self.wanted, carried, strict=True)
        new_cts = [build.converted(build.instantiate(spread[i], ct), ct.type) for i, ct in pairs]
        by_value = dict(zip(self.captured, spread[self.size :], strict=True))
        sums = [build.add(a, by_value[v]) for a, v in zip(accumulators, self.free, strict=True)]
        build.return_([build.sub(t, 1), build.sub(top, 1), marks, *buffers, *new_cts, *sums])

    def _types_of_free(self) -> list[Any]:
        """Return the types of the cotangents that an iteration has for captured values."""
        given = terminator(self.diff.block(self.pair.backward)).operands
        spread = scatter(self.active, scatter(self.pair.nonzero, given))
        by_value = dict(zip(self.captured, spread[self.size :], strict=True))
        return [(by_value[v] or v).type for v in self.free]

    def _arguments(self, state: Sequence[Value]) -> list[Value]:
        """Return the arguments of the forward function: all carries, or all that are not linear."""
        carried = self.fixed | dict(zip(self.state, state, strict=True))
        return [*(carried[i] for i in self.forward), *self.outside]

    def _seek(
        self, t: Value, top: Value, marks: Value, buffers: list[Value]
    ) -> tuple[Value, Value, list[Value], list[Value]]:
        """Advance from the top checkpoint to iteration t, and push a checkpoint at each half."""
        mark = loop_carries.read(marks, top)
        state = [loop_carries.read(b, top) for b in buffers]
        loop, cond, body = build.while_([mark, top, marks, *buffers, *state])
        with build.inserting(ir.InsertionPoint(cond)):
            build.return_([build.compare("LT", cond.arguments[0], t)])
        with build.inserting(ir.InsertionPoint(body)):
            self._halve(t, list(body.arguments))
        _, top, marks, *rest = loop.results
        return top, marks, rest[: len(self.state)], rest[len(self.state) :]

    def _halve(self, t: Value, arguments: list[Value]) -> None:
        mark, top, marks, *rest = arguments
        buffers, state = rest[: len(self.state)], rest[len(self.state) :]
        half = build.div(build.add(build.sub(t, mark), 1), 2)
        goal = build.add(mark, half)
        state = self._advance(mark, goal, state)
        top = build.add(top, 1)
        marks = loop_carries.write(marks, goal, top)
        buffers = [loop_carries.write(b, v, top) for b, v in zip(buffers, state, strict=True)]
        build.return_([goal, top, marks, *buffers, *state])

    def _advance(self, mark: Value, goal: Value, state: list[Value]) -> list[Value]:
        """Run the primal loop from iteration `mark` to `goal`."""
        loop, cond, body = build.while_([mark, *state])
        with build.inserting(ir.InsertionPoint(cond)):
            build.return_([build.compare("LT", cond.arguments[0], goal)])
        with build.inserting(ir.InsertionPoint(body)):
            now, *carried = body.arguments
            results = call(self.diff, self.again, self._arguments(carried))
            outs = dict(zip(self.pair.kept, results, strict=False))
            build.return_([build.add(now, 1), *(outs[i] for i in self.state)])
        return list(loop.results)[1:]
