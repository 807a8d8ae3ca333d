"""Save the values that the policy of a `jax.checkpoint` marks as saveable.

The reverse pass runs the function again (rematerialization), from its arguments and from the
marked values that it needs then. A mark inside of a loop is brought out of it first: the loop
stacks the value, and the stack has the mark. The rematerialized loop reads its slots instead of
computing the value. In the same way, a branch returns its marked values, and the results of the
branch op have the marks.

A mark with a `memory`, that of the host, offloads: what is stacked, returned and saved is the value
moved there, and what is rematerialized has, in place of the mark, that value moved back to the
device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pullback import _jax
from pullback._jax import ir, remat
from pullback.autodiff.effects import without_effects
from pullback.autodiff.functions import SplitFunction
from pullback.autodiff.state import Differentiation
from pullback.ir import build, loop_carries, ops, placements
from pullback.ir.build import Value
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.inline import inline_call
from pullback.ir.placements import memory_of
from pullback.ir.purity import is_used
from pullback.ir.regions import (
    BRANCHES,
    block_of,
    blocks,
    operations,
    replace_op,
    replace_terminator,
    terminator,
)
from pullback.ir.signatures import drop_arguments, set_signature
from pullback.ir.stacks import Stack, stacks_of
from pullback.ir.symbols import callee
from pullback.ir.while_loops import Loop, read_loop
from pullback_runtime.ir._erasure import erase

_CALL, _LOOP = "func.call", "stablehlo.while"


def recomputation(
    diff: Differentiation, pair: SplitFunction, for_budget: bool
) -> tuple[str, str, int]:
    """Return a forward function that also returns marked values, and one for the residuals.

    The second computes the residuals again from the arguments and from those marked values that it
    needs; the third result is the number of these.

    Args:
      for_budget: the checkpoint is none of the user's: effects, such as those of the forward
        functions of rules, happen the first time only.
    """

    def derive() -> tuple[str, str, int]:
        forward = with_marks_outside(diff, pair.forward)  # what rules compute may be marked too
        again = diff.clone_function(forward, f"{pair.forward}.again")
        block = diff.block(again)
        given = [_given_instead(block, mark) for mark in _marks(block)]
        replace_terminator(block, list(terminator(block).operands)[len(pair.kept) :])
        erase_dead_ops(block, diff.functions)
        what = "a checkpoint of a memory budget" if for_budget else "a jax.checkpoint"
        diff.check_runs_again(diff.function(again), what)
        needed = list(map(is_used, given))
        unused = [v for v, used in zip(given, needed, strict=True) if not used]
        drop_arguments(diff.function(again), unused)
        if for_budget:
            again = without_effects(diff, again)
        return _also_giving(diff, pair, forward, needed), again, sum(needed)

    return diff.cached(("recomputation", pair.forward, for_budget), derive)


def _marks(block: Any) -> list[Any]:
    """Return the ops that mark values of a block as saved by the checkpoint's policy."""
    return [each for each in operations(block) if ops.composite_name(each) == remat.SAVED]


def _move(mark: Any) -> Value | None:
    """Return the marked value where it was moved to the memory of the mark, if it was."""
    if memory_of(mark) is None:
        return None
    beside = (use.owner.operation for use in mark.operands[0].uses)
    moves = (op.result for op in beside if placements.is_placement(op))
    return next((v for v in moves if block_of(v.owner) == block_of(mark)), None)


def _to_save(mark: Any) -> Value:
    """Return the value that a mark says to save, moved to the memory of the mark if it has one."""
    v, memory = mark.operands[0], memory_of(mark)
    if memory is None:
        return v
    with build.inserting(ir.InsertionPoint(mark), mark.location):
        return _move(mark) or placements.placed(v, memory)


def _given_instead(block: Any, mark: Any) -> Value:
    """Add an argument to the block and use it in place of a marked value; return the argument."""
    given = v = block.add_argument(mark.result.type, mark.location)
    if memory_of(mark):
        with build.inserting(ir.InsertionPoint.at_block_begin(block), mark.location):
            v = placements.placed(given, placements.DEVICE)
    mark.result.replace_all_uses_with(v)
    _replace(mark.operands[0], v)
    return given


def _replace(v: Value, given: Value) -> None:
    """Replace `v` by `given`, and also what `v` is made of.

    If a branch op returned `v`, that is the value that each branch returns; if a loop stacked it,
    the value that each iteration writes into its slot. Of a value that was moved to another memory,
    its marks become the given one, moved back.
    """
    v.replace_all_uses_with(given)
    if placements.is_placed(v):
        _move_back(v, given)
        return
    if not build.is_result_of(v, _LOOP, *BRANCHES):
        return
    operation = v.owner.operation
    index = list(operation.results).index(v)
    if operation.name != _LOOP:
        for block in blocks(operation):
            _replace_in_branch(block, terminator(block).operands[index], given)
        return
    loop = read_loop(operation)
    stack = next((stack for stack in stacks_of(loop) if stack.carry == index), None)
    if stack is not None:
        _replace_in_body(operation, loop, stack, given)


def _move_back(v: Value, given: Value) -> None:
    """Use `given`, moved back to the device, instead of the marks of which `v` is the move."""
    uses = [use.owner.operation for use in v.owner.operands[0].uses]
    for mark in uses:
        if ops.composite_name(mark) == remat.SAVED and _move(mark) == v:
            with build.inserting(ir.InsertionPoint(mark), mark.location):
                mark.result.replace_all_uses_with(placements.placed(given, placements.DEVICE))


def _replace_in_branch(block: Any, v: Value, given: Value) -> None:
    """Replace the value that a branch returns, unless it is captured: other branches may use it."""
    if not isinstance(v, ir.BlockArgument) and block_of(v.owner) == block:
        _replace(v, given)


def _replace_in_body(operation: Any, loop: Loop, stack: Stack, given: Value) -> None:
    """Replace the value that each iteration stacks by a read of its slot in `given`.

    A loop-invariant value that is computed before the loop is in the first slot as well: a read in
    the body would not dominate its uses there. It stays where no iteration may stack it, or
    where it comes from further out, as `given` may not be there.
    """
    body, update = loop.body, stack.update
    index = terminator(body).operands[stack.carry].owner.operands[2]
    if index not in body.arguments or not build.is_result_of(update, "stablehlo.reshape"):
        return
    value = update.owner.operands[0]
    if value == index:
        return
    block = _defined_in(value)
    if block == body:
        place = ir.InsertionPoint.at_block_begin(body)
    elif block == block_of(operation) and loop.trip_count:
        place = _behind(given, block)
    else:
        return
    with build.inserting(place, update.owner.location):
        if block != body:
            index = build.full(index.type, stack.first)
        slot = build.reshape(loop_carries.read(given, index), build.shape(value))
    _replace(value, slot)


def _defined_in(v: Value) -> Any:
    """Return the block that defines a value, as an argument or as the result of an op."""
    return v.owner if isinstance(v, ir.BlockArgument) else block_of(v.owner)


def _behind(given: Value, block: Any) -> ir.InsertionPoint:
    """Return the first insertion point in `block` that `given` dominates."""
    if isinstance(given, ir.BlockArgument) or block_of(given.owner) != block:
        return ir.InsertionPoint.at_block_begin(block)
    return ir.InsertionPoint.after(given.owner)


def _also_giving(
    diff: Differentiation, pair: SplitFunction, forward: str, flags: Sequence[bool]
) -> str:
    """Return a copy of the forward function with the flagged marked values in place of residuals.

    Without a flag, return the function itself.
    """
    if not any(flags):
        return pair.forward
    copy = diff.clone_function(forward, f"{pair.forward}.saving")
    block = diff.block(copy)
    marks = [mark for mark, flag in zip(_marks(block), flags, strict=True) if flag]
    # A mark stays where it says no memory: residuals are told by it.
    saved = [_to_save(mark) if memory_of(mark) else mark.result for mark in marks]
    replace_terminator(block, [*list(terminator(block).operands)[: len(pair.kept)], *saved])
    erase_dead_ops(block, diff.functions)
    set_signature(diff.function(copy))
    return copy


# -------------------------------------------------------- out of loops, branches and calls


def with_marks_outside(diff: Differentiation, name: str) -> str:
    """Return a copy of a function whose marks in loops, branches and called functions are outside.

    If there is none inside, return the function itself. Loops whose trip count is unknown keep
    their marks, which have no effect there.
    """
    return diff.changed(name, "marked", partial(_has_marks_inside, diff), partial(_bring_out, diff))


def _has_marks_inside(diff: Differentiation, block: Any) -> bool:
    for operation in operations(block):
        if operation.name == _LOOP or operation.name in BRANCHES:
            if any(_marks_to_move(b) or _has_marks_inside(diff, b) for b in blocks(operation)):
                return True
        elif _is_marked_call(diff, operation):
            return True
    return False


def _marks_to_move(block: Any) -> list[Any]:
    """Return the marks in a loop or branch but for those whose values leave it already."""
    return [mark for mark in _marks(block) if _move(mark) is None]


def _is_marked_call(diff: Differentiation, operation: Any) -> bool:
    """Return True if an op calls a function with marks that belong to the caller's checkpoint.

    A function that is itself a checkpoint owns its marks.
    """
    if operation.name != _CALL:
        return False
    name = callee(operation)

    def compute() -> bool:
        if remat.CHECKPOINT in diff.function(name).attributes:
            return False
        block = diff.block(name)
        return bool(_marks(block)) or _has_marks_inside(diff, block)

    return diff.cached(("has marks", name), compute)


def _bring_out(diff: Differentiation, block: Any) -> None:
    while calls := [each for each in operations(block) if _is_marked_call(diff, each)]:
        for operation in calls:
            inline_call(operation, diff.function(callee(operation)).operation)
    for operation in operations(block):
        if operation.name == _LOOP:
            _bring_out(diff, blocks(operation)[1])
            _stack_marked(diff, operation)
        elif operation.name in BRANCHES:
            for nested in blocks(operation):
                _bring_out(diff, nested)
            _return_marked(diff, operation)


def _stack_marked(diff: Differentiation, operation: Any) -> None:
    """Let a loop stack the values that its body marks, and mark the stacks instead.

    Carries that receive such a value for the next iteration are stacked as well.
    """
    values = _unmarked(_marks_to_move(blocks(operation)[1]))
    loop = read_loop(operation)
    if not values or not loop.trip_count:
        return
    counting = {loop.body.arguments[counter.index] for counter in loop.counters}
    carried = zip(loop.body.arguments, terminator(loop.body).operands, strict=True)
    values |= dict.fromkeys(a for a, v in carried if v in values and a not in counting)
    with build.inserting(ir.InsertionPoint(operation), operation.location):
        results = list(loop_carries.stacked(operation, list(values), loop.trip_count).results)
        count = len(operation.results)
        for buffer in results[count : count + len(values)]:
            _mark(diff, buffer)
    replace_op(operation, results[:count])


def _return_marked(diff: Differentiation, operation: Any) -> None:
    """Let branches return the values they mark, and mark the results of the branch op instead."""
    rows = [list(_unmarked(_marks_to_move(block))) for block in blocks(operation)]
    if not any(rows):
        return
    with build.inserting(ir.InsertionPoint(operation), operation.location):
        new, _ = loop_carries.returning(operation, rows)
        results, count = list(new.results), len(operation.results)
        for v in results[count:]:
            _mark(diff, v)
    replace_op(operation, results[:count])


def _unmarked(marks: Sequence[Any]) -> dict[Value, None]:
    """Erase the marks of values with a static shape and return what to save of them.

    A mark with a memory stays, in the place of the value that is moved back.
    """
    marks = [each for each in marks if _has_a_shape(each.result.type)]
    on_device = [mark for mark in marks if memory_of(mark) is None]
    for mark in on_device:
        mark.result.replace_all_uses_with(mark.operands[0])
    values = dict.fromkeys(map(_to_save, marks))
    for mark in on_device:
        erase(mark)
    return values


def _has_a_shape(type: Any) -> bool:
    return build.info(type).kind != "?" and -1 not in build.shape_of(type)


def _mark(diff: Differentiation, v: Value) -> None:
    def derive() -> str:
        name, block = diff.add_function("saved", [v.type], [v.type], build.here.loc)
        with build.inserting(ir.InsertionPoint(block), build.here.loc):
            build.emit("func.return", (), list(block.arguments))
        return name

    name = diff.cached(("saved", str(v.type)), derive)
    attributes = {
        "name": build.string(remat.SAVED),
        "decomposition": build.symbol(name),
        "composite_attributes": ir.DictAttr.get({}, _jax.context()),
    }
    build.emit(ops.COMPOSITE, [v.type], [v], attributes)
