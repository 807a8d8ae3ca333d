"""Buffers with one slot per iteration: stacked residuals, and checkpoints."""

from __future__ import annotations

from pullback._errors import MissingRuleError
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.frontend.locations import user_line


def buffer_of(v: Value, count: int) -> Value:
    """Zeros with a leading dimension of `count` slots for values like `v`, which are arrays."""
    t = build.info(v.type)
    if t.kind == "?":
        raise MissingRuleError(
            f"no derivative that has to keep a value of type {v.type} for each of many iterations",
            where=user_line(build.here.loc),
            do="take what needs it out of the loop",
        )
    return build.zeros(build.tensor((count, *t.shape), t.element))


def write(buffer: Value, v: Value, index: Value) -> Value:
    """The buffer with `v` in slot `index`."""
    dims = build.shape(v)
    slot = build.reshape(v, (1, *dims))
    return build.dynamic_update_slice(buffer, slot, _starts(index, len(dims)))


def read(buffer: Value, index: Value) -> Value:
    """What stands in slot `index`."""
    dims = build.shape(buffer)[1:]
    slot = build.dynamic_slice(buffer, _starts(index, len(dims)), (1, *dims))
    return build.reshape(slot, dims)


def _starts(index: Value, rank: int) -> list[Value]:
    return [index] + [build.integer(0, index)] * rank
