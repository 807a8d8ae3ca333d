"""Further carries of loops and results of branches: slots for values of their bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback._jax import ir
from pullback.errors import MissingRuleError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.locations import user_line
from pullback.ir.regions import blocks, remade, replace_terminator, terminator
from pullback.ir.while_loops import read_loop
from pullback_runtime.ir._erasure import erase


def buffer_of(v: Value, count: int) -> Value:
    """Return zeros with a leading dimension of `count` slots for arrays like `v`."""
    t = build.info(v.type)
    if t.kind == "?":
        raise MissingRuleError(
            f"no derivative that has to keep a value of type {v.type} for each of many iterations",
            where=user_line(build.here.loc),
            do="take what needs it out of the loop",
        )
    return build.zeros(build.tensor((count, *t.shape), t.element))


def write(buffer: Value, v: Value, index: Value) -> Value:
    """Write `v` into slot `index` of a buffer; return the new buffer."""
    dims = build.shape(v)
    slot = build.reshape(v, (1, *dims))
    return build.dynamic_update_slice(buffer, slot, _starts(index, len(dims)))


def read(buffer: Value, index: Value) -> Value:
    """Read slot `index` of a buffer."""
    dims = build.shape(buffer)[1:]
    slot = build.dynamic_slice(buffer, _starts(index, len(dims)), (1, *dims))
    return build.reshape(slot, dims)


def _starts(index: Value, rank: int) -> list[Value]:
    return [index] + [build.integer(0, index)] * rank


def widened(loop: Any, inits: Sequence[Value]) -> Any:
    """Emit a copy of a loop with further carries, which its body still has to yield.

    The copy takes over the regions of the loop.
    """
    types = [v.type for v in inits]
    new = remade(loop, [*(r.type for r in loop.results), *types], [*loop.operands, *inits])
    for block in blocks(new):
        for t in types:
            block.add_argument(t, loop.location)
    return new


def retyped(loop: Any) -> Any:
    """Replace a loop by one with the types that its body's arguments have by now, here."""
    cond, body = blocks(loop)
    types = [a.type for a in body.arguments]
    for argument, type in zip(cond.arguments, types, strict=True):
        argument.set_type(type)
    inits = [build.converted(v, type) for v, type in zip(loop.operands, types, strict=True)]
    new = remade(loop, types, inits)
    erase(loop)
    return new


def stacked(loop: Any, values: Sequence[Value], count: int) -> Any:
    """Emit a copy of a loop with further results: for each value of its body, a stack.

    A stack has a slot for each iteration, of which there are no more than `count`. The copy takes
    over the regions of the loop.
    """
    integer = build.scalar("i32" if count < 2**31 else "i64")
    index = _index(loop, count)
    own_index = [build.full(integer, 0)] if index is None else []
    new = widened(loop, [*(buffer_of(v, count) for v in values), *own_index])
    body = blocks(new)[1]
    end = terminator(body)
    arguments = list(body.arguments)[len(loop.results) :]
    with build.inserting(ir.InsertionPoint(end), end.location):
        at = arguments[-1] if index is None else index
        extra = [write(b, v, at) for b, v in zip(arguments, values, strict=False)]
        if index is None:
            extra.append(build.add(at, 1))
    replace_terminator(body, [*end.operands, *extra])
    return new


def returning(branches: Any, rows: Sequence[Sequence[Value]]) -> tuple[Any, list[dict[Value, int]]]:
    """Emit a copy of an `if` or `case` whose blocks return these values too, each its own row.

    Values of equal type in different rows share a result. Also return, for each block, the number
    of the result of each value.
    """
    types: list[Any] = []
    places = [_place(values, types) for values in rows]
    new = remade(branches, [*(r.type for r in branches.results), *types])
    for block, place in zip(blocks(new), places, strict=True):
        by_slot = {slot: v for v, slot in place.items()}
        end = terminator(block)
        with build.inserting(ir.InsertionPoint(end), end.location):
            extra = [by_slot[i] if i in by_slot else build.zeros(t) for i, t in enumerate(types)]
        replace_terminator(block, [*end.operands, *extra])
    count = len(branches.results)
    return new, [{v: count + slot for v, slot in place.items()} for place in places]


def _place(values: Sequence[Value], types: list[Any]) -> dict[Value, int]:
    free = list(range(len(types)))
    places = {}
    for v in values:
        slot = next((i for i in free if types[i] == v.type), None)
        if slot is None:
            slot = len(types)
            types.append(v.type)
        else:
            free.remove(slot)
        places[v] = slot
    return places


def _index(operation: Any, count: int) -> Value | None:
    """Return a carry that counts 0, 1, 2, … and does not wrap around before the last slot."""
    loop = read_loop(operation)
    counter = loop.counter
    if counter is None or (counter.start, counter.step) != (0, 1):
        return None
    carry = loop.body.arguments[counter.index]
    return carry if build.holds(carry.type, count - 1) else None
