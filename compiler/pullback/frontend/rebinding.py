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
import itertools
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback._jax import objects, source_info, tracing
from pullback.frontend.closures import Nothing, Variable, reachable, variables

_FRONTEND = os.path.dirname(__file__)

_STAYS = (
    *("BUILD_TUPLE", "CALL", "KW_NAMES", "LOAD_ATTR", "LOAD_CLOSURE", "LOAD_CONST"),
    *("LOAD_GLOBAL", "LOAD_METHOD", "MAKE_FUNCTION", "PRECALL", "PUSH_NULL"),
    "SET_FUNCTION_ATTRIBUTE",
)
_GOES_ELSEWHERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RETURN", "RAISE", "RERAISE")
_RAISES_NOTHING = frozenset({"JUMP_BACKWARD", "JUMP_FORWARD", "NOP", "POP_TOP", "STORE_FAST"})

ASSIGNED, DELETED = "STORE_DEREF", "DELETE_DEREF"
"""The instructions that change what a variable holds which other functions close over."""

Frame = tuple[types.CodeType, int]
"""A function that is running, and how far it is."""


def assigned_again(rule: Any, tracebacks: Sequence[Any]) -> tuple[str | None, dict[int, str]]:
    """The name of a variable whose value may be another than at the call; None if there is none.

    And by identity, the rules of functions in such variables that are the same but for their rules,
    with the names of these variables: in a loop, a rule calls its own function, which is that of
    the last turn, as long as nobody differentiates what the rule computes.

    Args:
      rule: what the call has for a rule.
      tracebacks: of the call, and of those in whose functions it was traced.
    """
    running = _holding_variables(tracebacks)
    others: dict[int, str] = {}
    for variable in variables(rule) if running else ():
        function, name, value = variable
        how = DELETED if value is Nothing else ASSIGNED
        for code in _changing(function, name, running, how):
            if not _is_harmless(variable, code):
                return name, {}
            rules = objects.rules_of(value)
            is_its_own = bool(rules) and rules[0] is function
            if not is_its_own and not all(_has_only_variables(each, code) for each in rules):
                others[id(rules[0])] = name
    return None, others


def other_function(rule: Any, others: Mapping[int, str]) -> str | None:
    """The name of the variable of one of these functions, if a rule is one or uses one."""
    found = (others.get(id(each)) for each in (reachable(rule) if others else ()))
    return next((name for name in found if name is not None), None)


def kept_tracers(rule: Any, tracebacks: Sequence[Any], without: dict[int, Any]) -> list[Any]:
    """The values of a trace that functions close over, in variables that are not assigned again.

    Args:
      without: objects, by identity, that hold none; there are more of them afterwards.
    """
    count = len(without)
    if not any(map(tracing.is_tracer, reachable(rule, backward=True, seen=without))):
        return []
    while len(without) > count:  # these may lead to one
        without.popitem()
    running = _holding_variables(tracebacks)

    def keeps(function: types.FunctionType, name: str) -> bool:
        return not any(_changing(function, name, running, ASSIGNED))

    return [*filter(tracing.is_tracer, reachable(rule, keeps, backward=True))]


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
    return assigns and source_info.is_user_file(code.co_filename)


def _assigned(code: types.CodeType) -> set[str]:
    """The variables that a function, or one in it, assigns or deletes where others see it."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    own = {each.argval for each in _instructions(code) if each.opname in (ASSIGNED, DELETED)}
    return own.union(*map(_assigned, inner))


def _running(tracebacks: Sequence[Any]) -> list[Frame]:
    """The functions of the user's that have ended since: those that the trace called."""
    frames = []
    for traceback in tracebacks:
        for frame in source_info.frames_of(traceback):
            if frame[0].co_filename.startswith(_FRONTEND):
                break
            frames.append(frame)
    return frames


@functools.lru_cache(maxsize=1024)
def _is_inside(code: types.CodeType, outer: types.CodeType) -> bool:
    inner = [const for const in outer.co_consts if isinstance(const, types.CodeType)]
    return code in inner or any(_is_inside(code, each) for each in inner)


@functools.lru_cache(maxsize=1024)
def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname != "CACHE"]


def _changed(code: types.CodeType, name: str, how: str) -> list[int]:
    """The positions of what changes a variable."""
    instructions = enumerate(_instructions(code))
    return [i for i, each in instructions if each.opname == how and each.argval == name]


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
    changed.update(_changed(code, name, how))
    offsets = [each.offset for each in instructions]
    handlers = _handlers(code)
    first = bisect.bisect_right(offsets, place)
    # The call itself may raise, if the function with the rule was called further in.
    pending, met = [first, *handlers[first - 1]], set[int]()
    while pending and met.isdisjoint(changed):
        i = pending.pop()
        if i in met or i >= len(instructions):
            continue
        met.add(i)
        pending += handlers[i]
        each = instructions[i]
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            pending.append(bisect.bisect_left(offsets, each.argval))
        if not each.opname.startswith(_GOES_ELSEWHERE):
            pending.append(i + 1)
    return not met.isdisjoint(changed)


@functools.lru_cache(maxsize=1024)
def _targets(code: types.CodeType) -> frozenset[int]:
    """The positions that are reached by a jump, or when something raises."""
    instructions = _instructions(code)
    offsets = [each.offset for each in instructions]
    jumps = [e for e in instructions if e.opcode in dis.hasjrel or e.opcode in dis.hasjabs]
    targets = {bisect.bisect_left(offsets, each.argval) for each in jumps}
    return frozenset(targets.union(*_handlers(code)))


@functools.lru_cache(maxsize=1024)
def _handlers(code: types.CodeType) -> list[list[int]]:
    """Of each instruction, the positions where it goes on if it raises."""
    instructions = _instructions(code)
    offsets = [each.offset for each in instructions]
    found: list[list[int]] = [[] for _ in instructions]
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        target = bisect.bisect_left(offsets, entry.target)
        start, end = (bisect.bisect_left(offsets, each) for each in (entry.start, entry.end))
        for i in range(start, end):
            if instructions[i].opname not in _RAISES_NOTHING:
                found[i].append(target)
    return found


def _names(instruction: dis.Instruction, does: str = "LOAD_") -> Sequence[Any]:
    """The variables that an instruction reads, if it does; from Python 3.13 on it may be two."""
    if not instruction.opname.startswith(does):
        return ()
    value = instruction.argval
    return value if isinstance(value, tuple) else (value,)


def _is_harmless(variable: Variable, code: types.CodeType) -> bool:
    """Whether it is the same value each time, or a function whose own variables are looked at."""
    function, name, value = variable
    if name in code.co_freevars or _changing_inside(code, name, ASSIGNED, function.__code__):
        return False
    places = _changed(code, name, ASSIGNED)
    if places and all(_is_constant(code, i, value) for i in places):
        return True
    functions = [value] if isinstance(value, types.FunctionType) else objects.functions_of(value)
    if not functions or len(places) != 1 or not _is_made_of_what_stays(code, places[0]):
        return False
    rules = objects.rules_of(value)
    made_there = [f for f in functions if isinstance(f, types.FunctionType) and f not in rules]
    return all(_is_inside(each.__code__, code) for each in made_there) and (
        _is_function_of(rules, function) or all(_has_only_variables(r, code) for r in rules)
    )


def _is_function_of(rules: Sequence[Any], function: types.FunctionType) -> bool:
    """Whether a rule calls the function that it is the rule of."""
    return bool(rules) and _code_of(rules[0]) is function.__code__


def _code_of(function: Any) -> Any:
    return getattr(getattr(function, "func", function), "__code__", None)


def _has_only_variables(function: Any, code: types.CodeType) -> bool:
    """Whether a function holds nothing else, and these are in this code."""
    if not isinstance(function, types.FunctionType) or not _is_inside(function.__code__, code):
        return False
    return not (function.__defaults__ or function.__kwdefaults__)


def _is_constant(code: types.CodeType, place: int, value: Any) -> bool:
    """Whether what is assigned there is this constant, and never another one."""
    before = _instructions(code)[place - 1]
    return before.opname == "LOAD_CONST" and before.argval is value and place not in _targets(code)


def _is_made_of_what_stays(code: types.CodeType, end: int) -> bool:
    """Whether what is assigned at `end` is made, in one way, of constants, globals and imports.

    Of the variables that functions made there close over, it is no matter what they hold.
    """
    instructions, targets, height = _instructions(code), _targets(code), 0
    for i in range(end - 1, -1, -1):
        each = instructions[i]
        if i + 1 in targets or not (each.opname.startswith(_STAYS) or _loads(code, each)):
            return False
        height += dis.stack_effect(each.opcode, each.arg, jump=False)
        if height == 1:
            return True
    return False


def _loads(code: types.CodeType, instruction: dis.Instruction) -> bool:
    """Whether it loads what the function has imported, or variables for a function to close over.

    These stand there as they are, and not what they hold.
    """
    names = set(_names(instruction))
    if not names or not instruction.opname.startswith("LOAD_FAST"):
        return False
    pairs = itertools.pairwise(_instructions(code))
    stored = [(n, b.opname.startswith("IMPORT_")) for b, e in pairs for n in _names(e, "STORE_")]
    imported = {name for name, from_module in stored if from_module}
    imported -= {name for name, from_module in stored if not from_module}
    return names <= {*code.co_cellvars, *code.co_freevars} or names <= imported
