"""Variables that a rule closes over, and that are assigned again after the call.

A rule runs when the function around its call has been traced, and reads what its variables hold
then: of a loop, what the last turn left there. JAX's eager mode runs it at the call. A variable of
a function that was running at the call can have been assigned since, if an assignment to it can be
reached, in the code of that function, from where it was.
"""

from __future__ import annotations

import bisect
import dis
import functools
import os
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax

from pullback import _jax

_FRONTEND = os.path.dirname(__file__)

_MAKES_FUNCTION = ("CALL", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE")
_GOES_ELSEWHERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RETURN", "RAISE", "RERAISE")

ASSIGNED, DELETED = "STORE_DEREF", "DELETE_DEREF"
"""The instructions that change what a variable holds which other functions close over."""

LONGEST = 64
"""Lists of more items hold data, not functions."""

Frame = tuple[types.CodeType, int]
"""A function that is running, and how far it is."""


def assigned_again(rule: Any, tracebacks: Sequence[Any]) -> str | None:
    """The name of a variable whose value may be another than at the call; None if there is none.

    Args:
      rule: what the call has for a rule.
      tracebacks: of the call, and of those in whose functions it was traced.
    """
    running = _holding_variables(tracebacks)
    for variable in _variables(rule) if running else ():
        function, name, value = variable
        how = DELETED if value is Nothing else ASSIGNED
        codes = _changing(function, name, running, how)
        if any(not _is_harmless(variable, code) for code in codes):
            return name
    return None


def kept_tracers(rule: Any, tracebacks: Sequence[Any], without: dict[int, Any]) -> list[Any]:
    """The values of a trace that functions close over, in variables that are not assigned again.

    Args:
      without: objects, by identity, that hold none; there are more of them afterwards.
    """
    count = len(without)
    if not any(map(_jax.is_tracer, _reachable(rule, backward=True, seen=without))):
        return []
    while len(without) > count:  # these may lead to one
        without.popitem()
    running = _holding_variables(tracebacks)

    def keeps(function: types.FunctionType, name: str) -> bool:
        return not any(_changing(function, name, running, ASSIGNED))

    return [*filter(_jax.is_tracer, _reachable(rule, keeps, backward=True))]


def _changing(
    function: types.FunctionType, name: str, running: Sequence[Frame], how: str
) -> Iterator[types.CodeType]:
    """The functions that are running and can assign again to what this one closes over."""
    own = function.__code__
    for code, place in running:
        has = name in code.co_cellvars or name in code.co_freevars
        if has and _is_inside(own, code) and _is_changed_after(code, place, name, how, own):
            yield code


def _holding_variables(tracebacks: Sequence[Any]) -> list[Frame]:
    return [frame for frame in _running(tracebacks) if _may_hold_variables(frame[0])]


@functools.lru_cache(maxsize=1024)
def _may_hold_variables(code: types.CodeType) -> bool:
    """Whether functions of the user's may close over variables that this one assigns."""
    assigns = bool(code.co_cellvars) or not _assigned(code).isdisjoint(code.co_freevars)
    return assigns and _jax.is_user_file(code.co_filename)


def _assigned(code: types.CodeType) -> set[str]:
    """The variables that a function, or one in it, assigns or deletes where others see it."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    own = {each.argval for each in _instructions(code) if each.opname in (ASSIGNED, DELETED)}
    return own.union(*map(_assigned, inner))


def _running(tracebacks: Sequence[Any]) -> list[Frame]:
    """The functions of the user's that have ended since: those that the trace called."""
    frames = []
    for traceback in tracebacks:
        for frame in _jax.frames_of(traceback):
            if frame[0].co_filename.startswith(_FRONTEND):
                break
            frames.append(frame)
    return frames


Variable = tuple[types.FunctionType, str, Any]
"""A function, the name of a variable that it closes over, and the value of that."""


def _variables(value: Any) -> Iterator[Variable]:
    """The variables that functions close over, all the way down."""
    for each in _reachable(value):
        if isinstance(each, types.FunctionType):
            yield from _closed_over(each)


def _reachable(
    value: Any,
    through: Callable[[types.FunctionType, str], bool] = lambda function, name: True,
    backward: bool = False,
    seen: dict[int, Any] | None = None,
) -> Iterator[Any]:
    """A value, what it holds and what functions close over, all the way down.

    Args:
      through: says which variables of functions count.
      backward: also through the backward rules of functions.
      seen: objects by identity, which are left out.
    """
    pending, seen = [value], {} if seen is None else seen
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind in _PLAIN or id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        if kind is types.FunctionType:
            pending.extend(value.__defaults__ or ())
            pending.extend((value.__kwdefaults__ or {}).values())
            pending.extend(v for _, name, v in _closed_over(value) if through(value, name))
            continue
        if kind not in _openers:
            _openers[kind] = _opener(value)
        if (parts := _openers[kind]) is not None:
            pending.extend(parts(value))
        if backward and kind is jax.custom_vjp:
            pending.append(getattr(value, "bwd", None))


_PLAIN = frozenset({str, bytes, int, float, complex, bool, type(None), types.CodeType})


class Nothing:
    """What a variable holds that is not assigned yet, or has been deleted."""


def _closed_over(function: types.FunctionType) -> Iterator[Variable]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield function, name, cell.cell_contents
        except ValueError:
            yield function, name, Nothing


_openers: WeakKeyDictionary[type, Callable[[Any], Sequence[Any]] | None] = WeakKeyDictionary()
"""What objects of a class hold, if they can hold anything that we see."""


def _opener(value: Any) -> Callable[[Any], Sequence[Any]] | None:
    """How to open objects of the class of this one."""
    if _jax.is_debug_info(value):
        return None
    if isinstance(value, (tuple, list)):
        return lambda value: value if len(value) <= LONGEST else ()
    if isinstance(value, dict):
        return lambda value: tuple(value.values()) if len(value) <= LONGEST else ()
    if isinstance(value, functools.partial):
        return lambda value: (value.func, value.args, tuple(value.keywords.values()))
    if isinstance(value, types.MethodType):
        return lambda value: (value.__func__, value.__self__)
    if _jax.is_wrapped_function(value):
        return lambda value: (value.f, value.transforms, value.params)
    if _jax.is_box(value):
        return lambda value: (value.val,)
    if _jax.functions_of(value):
        return _jax.functions_of
    return None if jax.tree_util.all_leaves([value]) else _leaves


def _leaves(tree: Any) -> Sequence[Any]:
    """The leaves of a tree; none of one that cannot be taken apart, as for keys of two types."""
    try:
        return jax.tree.leaves(tree)
    except (TypeError, ValueError):
        return ()


@functools.lru_cache(maxsize=1024)
def _is_inside(code: types.CodeType, outer: types.CodeType) -> bool:
    inner = [const for const in outer.co_consts if isinstance(const, types.CodeType)]
    return code in inner or any(_is_inside(code, each) for each in inner)


@functools.lru_cache(maxsize=1024)
def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname != "CACHE"]


def _changed(code: types.CodeType, name: str, how: str) -> dict[int, dis.Instruction]:
    """The positions of what changes a variable, and the instruction before each."""
    instructions = _instructions(code)
    return {
        i: instructions[i - 1]
        for i, each in enumerate(instructions)
        if each.opname == how and each.argval == name
    }


@functools.lru_cache(maxsize=1024)
def _changing_inside(
    code: types.CodeType, name: str, how: str, but: types.CodeType
) -> list[types.CodeType]:
    """The functions in a function that change its variable, themselves or by those in them."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    mine = [each for each in inner if each is not but and name in each.co_freevars]
    return [
        each for each in mine if _changed(each, name, how) or _changing_inside(each, name, how, but)
    ]


@functools.lru_cache(maxsize=1024)
def _is_changed_after(
    code: types.CodeType, place: int, name: str, how: str, own: types.CodeType
) -> bool:
    """Whether a change of a variable of the function `own` can follow on an instruction.

    A function inside that changes it may be called where it is named; what the function does
    when it runs itself is its own affair.
    """
    instructions = _instructions(code)
    calls = {each.co_name for each in _changing_inside(code, name, how, own)}
    changed = {i for i, each in enumerate(instructions) if not calls.isdisjoint(_names(each))}
    changed |= _changed(code, name, how).keys()
    offsets = [each.offset for each in instructions]
    pending, met = [bisect.bisect_right(offsets, place)], set[int]()
    while pending and met.isdisjoint(changed):
        i = pending.pop()
        if i in met or i >= len(instructions):
            continue
        met.add(i)
        each = instructions[i]
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            pending.append(bisect.bisect_left(offsets, each.argval))
        if not each.opname.startswith(_GOES_ELSEWHERE):
            pending.append(i + 1)
    return not met.isdisjoint(changed)


def _names(instruction: dis.Instruction) -> Sequence[Any]:
    """The variables that an instruction reads, if it does; from Python 3.13 on it may be two."""
    if not instruction.opname.startswith("LOAD_"):
        return ()
    value = instruction.argval
    return value if isinstance(value, tuple) else (value,)


def _is_harmless(variable: Variable, code: types.CodeType) -> bool:
    """Whether it is the same value each time, or one whose own variables are looked at."""
    function, name, value = variable
    if name in code.co_freevars or _changing_inside(code, name, ASSIGNED, function.__code__):
        return False
    sources = _changed(code, name, ASSIGNED).values()
    if all(each.opname == "LOAD_CONST" and each.argval is value for each in sources):
        return True
    functions = [value] if isinstance(value, types.FunctionType) else _jax.functions_of(value)
    codes = [each.__code__ for each in functions if isinstance(each, types.FunctionType)]
    return (
        bool(codes)
        and all(each.opname.startswith(_MAKES_FUNCTION) for each in sources)
        and all(_is_inside(each, code) for each in codes)
    )
