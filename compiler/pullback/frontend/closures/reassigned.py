"""Warn of a variable that a rule reads and that is assigned again after the rule's call.

A rule is traced when the function around its call has been, and reads what variables hold then: of
a loop, what the last iteration left. JAX's eager mode runs a `jvp` or `fwd` rule at the call.
"""

from __future__ import annotations

import dis
import functools
import itertools
import types
from collections.abc import Sequence
from typing import Any

from pullback._jax import reflect, source_info
from pullback.frontend.closures.reflect import variables
from pullback.ir import locations
from pullback.ir.warn import warn_of_late_binding

_STORE = dis.opmap["STORE_DEREF"]


def warn(rule: Any, name: str, tracebacks: Sequence[Any], where: str | None) -> None:
    """Warn where a function that was running at a call assigns a variable of its rule later.

    The tracebacks of JAX's equations begin where it began to trace.
    """
    frames = itertools.chain(*map(source_info.frames_of, tracebacks))
    running = [frame for frame in frames if _shares(frame[0]) and _STORE in frame[0].co_code[::2]]
    found = variables(rule) if running else ()
    for (function, variable, value), (code, place) in itertools.product(found, running):
        if _is_inside(function.__code__, code):
            for line in _assigned_after(code, place, variable, is_made=_is_made_in(value, code)):
                at = locations.describe(code.co_filename, line, code.co_qualname)
                warn_of_late_binding(name, variable, at, where)


def _shares(code: types.CodeType) -> bool:
    """Return True if functions inside of a code may close over a variable that it assigns."""
    return bool(code.co_cellvars or code.co_freevars)


@functools.lru_cache(maxsize=1024)
def _is_inside(code: types.CodeType, outer: types.CodeType) -> bool:
    inner = [const for const in outer.co_consts if isinstance(const, types.CodeType)]
    return code in inner or any(_is_inside(code, each) for each in inner)


def _is_made_in(value: Any, code: types.CodeType) -> bool:
    """Return whether a value is a function that `code` makes, and holds nothing but variables."""
    parts = [value] if isinstance(value, types.FunctionType) else reflect.functions_of(value)
    return bool(parts) and all(
        isinstance(each, types.FunctionType)
        and _is_inside(each.__code__, code)
        and not (each.__defaults__ or each.__kwdefaults__)
        for each in (*parts, *reflect.rules_of(value))
    )


@functools.lru_cache(maxsize=1024)
def _assigned_after(code: types.CodeType, place: int, name: str, is_made: bool) -> list[int]:
    """Return the first line that assigns below an instruction, or in a loop around it, if any.

    One that makes a function anew each time (`is_made`), and is the only one, changes nothing.
    Handlers of exceptions stand at the end of a code, and lead back by jumps without interrupts.
    """
    every = list(dis.get_instructions(code))
    jumps = (e for e in every if "JUMP" in e.opname and not e.opname.endswith("NO_INTERRUPT"))
    loops = [(e.argval, e.offset) for e in jumps if e.argval < e.offset]
    lines = {e.offset: (e.positions.lineno or 0) if e.positions else 0 for e in every}
    stores = [e.offset for e in every if e.opname == "STORE_DEREF" and e.argval == name]
    after = (
        lines[store]
        for store in ([] if is_made and len(stores) == 1 else stores)
        if (store > place and lines[store] >= lines.get(place, 0))
        or any(start <= store < end and start <= place < end for start, end in loops)
    )
    return list(itertools.islice(after, 1))
