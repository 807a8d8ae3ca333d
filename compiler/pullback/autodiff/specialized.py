"""Specialized rules: what a rule emits for all ops of one signature, as a function to inline.

Most ops of a program differ from others in their operands and in nothing else that their rules look
at. So the rule runs once for each signature, on the arguments of a function, and C++ inlines that
function for each op. A rule takes part that says which attributes it reads (`Rule.reads`): these,
the types and which operands are active are the signature. It sees arguments for values, so it
cannot look at what made them. One that copies the op in forward mode is for ops that have no other
attributes than it names.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff.checks import check_cotangents, check_count, check_type
from pullback.autodiff.registry import Op, Rule
from pullback.errors import RuleResultError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.locations import user_line
from pullback.ir.purity import is_used
from pullback.ir.signatures import function_type
from pullback_runtime.ir._contexts import forgetting, keeps
from pullback_runtime.ir._erasure import erase, erase_arguments

Signature = tuple[Any, ...]

Reading = tuple[Signature, int, Any, tuple[Value, ...], tuple[Any, ...]]
"""An op for a specialized rule: its signature, the place of its result, the operation, its values
(the result, then operands), and the places of the operands.

The place of a value is its number among those that are active, or None.
"""

Record = Op | Reading
"""An op as a sweep keeps it."""


class Kind:
    """A type, as the same object each time, and the facts about it that sweeps query.

    Attributes:
      inexact: values of the type have tangents.
      varies: it is not a tensor of static shape, so rules are not specialized for it.
    """

    __slots__ = ("inexact", "type", "varies")

    def __init__(self, type: Any) -> None:
        t = build.info(type)
        self.type = type
        self.inexact = t.kind in "fc"
        self.varies = t.kind == "?" or -1 in t.shape


Kinds = list[Kind | None]
"""Holds the types of active values; None where one was not queried yet."""


class _Known(dict[Any, Kind]):
    """The kind of each type."""

    def __missing__(self, type: Any) -> Kind:
        return self.setdefault(type, Kind(type))


_kind_of = _Known()
forgetting(_kind_of.clear)


def kinds_of(types: Iterable[Any]) -> list[Kind]:
    return [_kind_of[type] for type in types]


def kinds_in(function: Any) -> tuple[Sequence[Kind], Sequence[Kind]]:
    """Return the kinds of the arguments and of the results of a function."""
    return _kinds_in(function.attributes["function_type"])


@_jax.cached
def _kinds_in(function_type: Any) -> tuple[Sequence[Kind], Sequence[Kind]]:
    kind = ir.FunctionType(function_type.value)
    return tuple(kinds_of(kind.inputs)), tuple(kinds_of(kind.results))


Reader = Callable[[Any, Rule], "Reading | tuple[()] | None"]


def reader(active: dict[Value, int], kinds: Kinds, frame: Any, forward: bool) -> Reader:  # noqa: C901 -- the hot loop: calls cost
    """Return a function that reads an op for a sweep, if its rule can be specialized.

    The function returns a `Reading`, and makes the result of the op active; `()` if no operand is
    active; None if the rule has to run for this op alone.
    """
    place_of, append, kind_of = active.get, kinds.append, _kind_of

    def read(operation: Any, rule: Rule) -> Reading | tuple[()] | None:
        signature: Any
        values: Any
        places: Any
        operands = operation.operands
        count = len(operands)
        if count == 2:
            x, y = operands[0], operands[1]
            i, j = place_of(x), place_of(y)
            if i is None and j is None:
                return () if rule.variant is None else None  # then its body may use what is active
            result = operation.result
            if rule.variant is not None:
                flags = [i is not None, j is not None]
                rule = rule.variant(Op(operation, [x, y], [result], flags, rule, frame))
                if not (rule.runs_once or (forward and rule.reads is not None)):
                    return None
            values, places = (result, x, y), (i, j)
            first = kind_of[x.type] if i is None else kinds[i] or look(x, i)
            second = kind_of[y.type] if j is None else kinds[j] or look(y, j)
            if second.varies:
                return None
            kind = first if rule.alike and first is second else kind_of[result.type]
            moving = "y" if i is None else "x" if j is None else "xx" if i == j else "xy"
            signature = rule, kind, first, second, moving
        elif rule.variant is not None:
            return None
        elif count == 1:
            x = operands[0]
            i = place_of(x)
            if i is None:
                return ()
            result = operation.result
            values, places = (result, x), (i,)
            first = kinds[i] or look(x, i)
            kind = first if rule.alike else kind_of[result.type]
            signature = rule, kind, first
        else:
            given = list(operands)
            places = tuple(map(place_of, given))
            if not given or all(i is None for i in places):
                return ()
            result = operation.result
            values = (result, *given)
            pairs = zip(given, places, strict=True)
            known = [kind_of[v.type] if i is None else kinds[i] or look(v, i) for v, i in pairs]
            kind, first = kind_of[result.type], next((k for k in known if k.varies), known[0])
            signature = rule, kind, *known, *(i is None for i in places), *map(given.index, given)
        if first.varies or kind.varies:
            return None
        if rule.reads or (forward and rule.copies):
            attributes = operation.attributes
            count = len(attributes) if forward and rule.copies else 0
            signature = (*signature, *map(attributes.get, rule.reads or ()), count)
        active[result] = place = len(kinds)
        append(kind)
        return signature, place, operation, values, places

    def look(v: Value, place: int) -> Kind:
        kinds[place] = found = kind_of[v.type]
        return found

    return read


class Constant:
    """A constant of a specialized rule: made once in each block where the rule is inlined."""

    def __init__(self, type: Any, value: Any) -> None:
        self.type = type
        self.value = {"+": 0, "-": -0.0}.get(value, value)

    def make(self, made: dict[Any, Any]) -> Value:
        made[self] = found = build.full(self.type, self.value)
        return found


class Specialized(NamedTuple):
    """A rule for one signature.

    Attributes:
      function: takes what is given, then values, then constants. In reverse, given is the cotangent
        of the result, and it returns those of operands; in forward mode, given are the tangents of
        the active operands, and it returns that of the result. None if what is given is forwarded.
      takes: picks these values from the result and the operands.
      constants: those that it takes.
      gives: in reverse, the positions of the operands whose cotangents it gives; in forward mode,
        what is forwarded of what is given, or nothing if the tangent is zero.
    """

    function: Any
    takes: Callable[[Sequence[Value]], Sequence[Value]]
    constants: tuple[Constant, ...]
    gives: tuple[int, ...]


SIZE = 1 << 11
"""Bytes of a function and of what belongs to it, about: programs may be of ever new shapes."""


class _Attributes:
    """The attributes of an op, of which a rule reads those that it names."""

    def __init__(self, operation: Any, rule: Rule) -> None:
        self._operation = operation
        self._rule = rule

    def __getitem__(self, name: str) -> Any:
        return self._of(name)[name]

    def __contains__(self, name: str) -> bool:
        return name in self._of(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self._of(name).get(name, default)

    def _of(self, name: str) -> Any:
        rule, operation = self._rule, self._operation
        if name not in (rule.reads or ()):
            raise RuleResultError(
                f"the rule for `{rule.name}` in {rule.module} looks at the attribute `{name}`, and "
                f"reads={rule.reads!r}",
                where=user_line(operation.location),
                do="name it in `reads`: the rule runs once for all ops that agree in these",
            )
        return operation.attributes


class _Looks:
    """An operation as far as a specialized rule looks at it, or copies it."""

    def __init__(self, operation: Any, rule: Rule) -> None:
        self.name = operation.name
        self.location = operation.location
        self.attributes = _Attributes(operation, rule)
        self.may_be_copied = False
        self._operation = operation
        self._rule = rule

    def clone(self, ip: Any) -> Any:
        if not self.may_be_copied:
            raise RuleResultError(
                f"the rule for `{self.name}` in {self._rule.module} copies the op",
                where=user_line(self.location),
                do="build a new one of the attributes named in `reads`; or say copies=True if "
                "`jvp` copies it, which is for ops then that have no other attributes",
            )
        copy = self._operation.clone(ip)
        copy.location = build.here.loc
        return copy


Emitted = tuple[Any, Sequence[Value], Sequence[int]]
"""What a rule emitted: whether it is more than what was given, what it returns, what it gives."""


def _pulled_back(op: Op, cts: Sequence[Value]) -> Emitted:
    found = op.rule.vjp(op, cts)
    check_cotangents(op, found)
    gives = [i for i, active in enumerate(op.active) if active and found[i] is not None]
    return any(found[i] != cts[0] for i in gives), [found[i] for i in gives], gives


def _pushed_forward(op: Op, given: Sequence[Value]) -> Emitted:
    op.operation.may_be_copied = op.rule.copies
    moving = (i for i, active in enumerate(op.active) if active)
    of_position = dict(zip(moving, given, strict=True))
    one_each = [of_position.get(op.operands.index(v)) for v in op.operands]
    tangents = op.rule.jvp(op, one_each)
    check_count(op, tangents, 1, "tangent")
    (found,) = tangents
    if found is not None:
        check_type(op, found, op.result_type, "tangent")
    if found is None or found in given:
        return False, [], [] if found is None else [list(given).index(found)]
    return True, [found], [0]


class Mode:
    """Holds what rules emit in one mode, for the signatures that occurred."""

    def __init__(self, emit: Callable[[Op, Sequence[Value]], Emitted]) -> None:
        self._emit = emit
        self.known: dict[Signature, Specialized] = {}
        forgetting(self.known.clear)

    def specialize(self, reading: Reading, given: Sequence[Kind]) -> Specialized:
        """Run the rule of an op once for its signature, and memoize what it emits.

        Args:
          given: the kinds of the cotangent, or of the tangents, that the rule gets.

        Raises: what the rule raises.
        """
        with _function(reading, given) as (block, op):
            values = list(block.arguments)[len(given) :]
            emits, returned, gives = self._emit(op, list(block.arguments)[: len(given)])
            build.emit("func.return", (), returned)
            constants = _taken_out(block, build.here.made)
        used = list(map(is_used, values))
        idle = (v for v, is_one in zip(values, used, strict=True) if not is_one)
        erase_arguments(block, [v.arg_number for v in idle])
        function = block.owner.operation if emits else None
        takes = _picking([i for i, is_one in enumerate(used) if is_one])
        keeps(_jax.context(), SIZE)
        new = Specialized(function, takes, tuple(constants), tuple(gives))
        self.known[reading[0]] = new
        return new


IN_REVERSE, IN_FORWARD = Mode(_pulled_back), Mode(_pushed_forward)


def specialize_reverse(reading: Reading) -> Specialized:
    """Specialize the rule of an op in reverse mode."""
    return IN_REVERSE.specialize(reading, [reading[0][1]])


UNFIT = Specialized(None, operator.itemgetter(slice(0)), (), ())
"""The rule of an op that it would copy with attributes which it does not name."""


def specialize_forward(reading: Reading) -> Specialized:
    """Specialize the rule of an op in forward mode; return UNFIT if that is not possible."""
    (rule, _, *kinds), _, operation, _, places = reading
    attributes = operation.attributes
    if rule.copies and any(name not in rule.reads for name in attributes):
        return IN_FORWARD.known.setdefault(reading[0], UNFIT)
    active = [kind for kind, place in zip(kinds, places) if place is not None]
    return IN_FORWARD.specialize(reading, active)


def _picking(positions: Sequence[int]) -> Callable[[Sequence[Value]], Sequence[Value]]:
    """Return a function that takes the elements at these positions out of a sequence."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    start = positions[0] if positions else 0
    return operator.itemgetter(slice(start, start + len(positions)))


@contextlib.contextmanager
def _function(reading: Reading, given: Sequence[Kind]) -> Iterator[tuple[Any, Op]]:
    """Run the body with the block of a new function, and the op on its arguments.

    The arguments are what is given, the result of the op, and its operands.
    """
    (rule, of_result, *kinds), _, operation, (_, *operands), places = reading
    loc = ir.Location.unknown(_jax.context())
    types = [kind.type for kind in (*given, of_result, *kinds[: len(operands)])]
    kind = function_type(types, (), _jax.context())
    attributes = {"sym_name": build.string("rule"), "function_type": kind}
    function = ir.Operation.create("func.func", attributes=attributes, regions=1, loc=loc, ip=False)
    block = function.regions[0].blocks.append(*types, arg_locs=[loc] * len(types))
    result, *values = list(block.arguments)[len(given) :]
    same = [values[operands.index(v)] for v in operands]  # what is one value stays one
    looks = _Looks(operation, rule)
    with build.inserting(ir.InsertionPoint(block), loc):
        yield block, Op(looks, same, [result], [p is not None for p in places], rule, None)


def _taken_out(block: Any, made: Any) -> list[Constant]:
    """Turn the constants that ops of a block use into arguments of it, and return them."""
    constants = {v: key for key, v in made.items()}
    used = [v for v in constants if any(_is_no(constants, use.owner) for use in v.uses)]
    for v in used:
        v.replace_all_uses_with(block.add_argument(v.type, build.here.loc))
    found = [Constant(*constants[v]) for v in used]
    for v in reversed(constants):  # parts of a complex one come before it
        erase(v.owner)
    return found


def _is_no(constants: Container[Value], operation: Any) -> bool:
    """Return True if an op is none of those that make constants."""
    return not len(operation.results) or operation.results[0] not in constants
