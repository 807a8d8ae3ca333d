"""Signatures of rules, which are equal if two rules are the same.

JAX wraps the user's rule functions anew at each call, so object identity would make every use of
one `custom_jvp` function a rule of its own, and a rule that calls its own function would never
end. Two uses share a rule when their functions are the same code over the same closed-over
values, their primal computations have the same structure, and their types agree. When in doubt
(an object we cannot look into) identity decides, which at worst stages a rule twice.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from numbers import Number
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from pullback._jax import hijax, jaxprs, reflect, tracing, user_rules
from pullback.frontend.closures.reflect import contents
from pullback.program.memo import has_hash

PLAIN: frozenset[Any] = frozenset({str, bytes, int, bool, type(None), types.CodeType})
NUMBERS: frozenset[Any] = frozenset({float, complex})  # equal zeros may differ by sign
AT_ONCE = frozenset({str, int, bool, type(None)}) | reflect.BY_VALUE


DEEPEST = 12
"""Objects nested deeper than this are told apart by address."""

NOTHING_AROUND = 1 << 30


def _reads_globals(function: types.FunctionType) -> bool:
    """Return True if a function of a user's may read a global variable of the user's."""
    found = function.__globals__
    values = [found[name] for name in _names_in(function.__code__) if name in found]
    return reflect.is_of_a_user(function) and any(map(_is_of_a_user, values))


def _is_of_a_user(value: Any) -> bool:
    is_function = isinstance(value, types.FunctionType)
    functions = [value] if is_function else reflect.functions_of(value)
    if functions:
        return any(map(reflect.is_of_a_user, functions))
    return not reflect.stays_as_it_is(value)


@functools.lru_cache(maxsize=1024)
def _names_in(code: types.CodeType) -> frozenset[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return frozenset(code.co_names).union(*map(_names_in, inner))


_COPYING = ("__reduce_ex__", "__reduce__", "__getstate__")


class _Part:
    """A part of a signature that others may share: equal ones are one object, hashed once.

    Without it, a function that holds another by two ways, which does so as well, and so on, has a
    signature of exponential size.
    """

    __slots__ = ("__weakref__", "_contents", "_hash")

    def __init__(self, contents: Hashable) -> None:
        self._contents = contents
        self._hash = hash(contents)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, _Part) and self._contents == other._contents


_parts_in_use: WeakValueDictionary[Hashable, _Part] = WeakValueDictionary()


def _part(contents: Hashable) -> _Part:
    found = _parts_in_use.get(contents)
    return _parts_in_use.setdefault(contents, _Part(contents)) if found is None else found


class Identities:
    """Signatures of functions and jaxprs; keeps objects alive that it identified by address.

    Attributes:
      may_change: whether the last signature covers an object identified by its address, which
        stays the same when its contents change.
      reads_globals: whether it covers a function that reads a global variable of the user's; this
        is looked at if `of_arguments`.
    """

    def __init__(self, of_arguments: bool = False) -> None:
        self.may_change = False
        self.reads_globals = False
        self._of_arguments = of_arguments
        self._known: Mapping[Any, int] = {}
        self._alive: dict[int, Any] = {}
        self._structures: dict[int, Hashable] = {}
        self._met: dict[int, int] = {}
        self._functions: dict[tuple[int, int], Hashable] = {}
        self._outermost = NOTHING_AROUND
        self._by_contents = False

    def begin(self, by_contents: bool) -> None:
        """Begin a signature; with `by_contents`, objects with equal contents are the same.

        That is for the rules of rules, which may make such objects anew each time they run, without
        end. A user may tell two objects of equal contents apart.
        """
        self._by_contents = by_contents
        self._met.clear()
        self._functions.clear()
        self.may_change = self.reads_globals = False

    def rules(self, equation: Any, functions: tuple[Any, ...]) -> Hashable:
        """Return a signature that is equal for calls whose rules, these functions, do the same."""
        outer = self._known, self._functions
        self._known = {} if equation is None else user_rules.rule_inside(equation).known
        self._functions = {}
        try:
            return self._value(functions, ())
        finally:
            self._known, self._functions = outer

    def jaxpr(self, jaxpr: Any) -> Hashable:
        """Return a signature that is equal for jaxprs that differ in variable names only."""
        if id(jaxpr) not in self._structures:
            self._alive[id(jaxpr)] = jaxpr
            self._structures[id(jaxpr)] = _part(self._structure(jaxpr))
        return self._structures[id(jaxpr)]

    def parameters(self, params: dict[str, Any]) -> Hashable:
        """Return a signature of an equation's parameters."""
        return tuple((name, self._parameter(value)) for name, value in sorted(params.items()))

    def _value(self, value: Any, enclosing: tuple[int, ...]) -> Hashable:  # noqa: C901 -- a case for each kind
        kind = type(value)
        if kind in PLAIN or isinstance(value, type):
            return kind.__name__, value
        if kind in NUMBERS:
            return kind.__name__, repr(value)
        if isinstance(value, np.generic):
            return kind, value.dtype, value.tobytes()
        if id(value) in enclosing:
            position = enclosing.index(id(value))
            self._outermost = min(self._outermost, position)
            return "itself", len(enclosing) - position
        inside = (*enclosing, id(value))
        if kind is types.FunctionType:
            return self._python_function(value, inside)
        if reflect.is_debug_info(value):
            return "names", reflect.names_in_debug_info(value)
        if (parts := _parts(value)) is not None:
            return kind, self._values(parts, inside), self._attributes(value, inside)
        if (held := reflect.opened(value)) is not None:
            return held[0], self._values(held[1], inside)
        if tracing.is_tracer(value) and tracing.name_of(value) in self._known:
            return "operand", value.aval, self._known[tracing.name_of(value)]
        if tracing.is_dead_tracer(value):  # which no rule can use
            return "dead tracer", value.aval
        if jaxprs.is_jaxpr(value):
            return "jaxpr", self.jaxpr(value)
        if jaxprs.is_equation(value):
            return "equation", self._equation(value, _numbered(value.invars))
        if (parameters := hijax.prim_parameters(value)) is not None:
            return type(value).__qualname__, self.parameters(parameters)
        return self._object(value, inside)

    def _values(self, items: Iterable[Any], inside: tuple[int, ...]) -> tuple[Hashable, ...]:
        """Return the signatures of items; about half are of types that need no more than a look."""
        return tuple(
            [
                (kind.__name__, item)
                if (kind := type(item)) in AT_ONCE
                else self._value(item, inside)
                for item in items
            ]
        )

    def _python_function(self, function: types.FunctionType, inside: tuple[int, ...]) -> Hashable:
        """Return a function's signature, memoized unless it depends on what is around or before."""
        key = id(function), min(len(inside), DEEPEST + 1)
        if key not in self._functions:
            outer, self._outermost = self._outermost, NOTHING_AROUND
            found = _part(self._of_function(function, inside))
            if self._outermost >= len(inside) - 1:
                self._functions[key] = found
            self._outermost = min(outer, self._outermost)
            return found
        return self._functions[key]

    def _of_function(self, function: types.FunctionType, inside: tuple[int, ...]) -> Hashable:
        self._alive[id(function)] = function
        cells = tuple(contents(cell) for cell in function.__closure__ or ())
        closed_over = self._values(cells, inside)
        defaults = self._values(function.__defaults__ or (), inside)
        named = self._values((function.__kwdefaults__ or {}).items(), inside)
        code = id(function.__code__), id(function.__globals__)
        own = self._attributes(function, inside) if reflect.is_of_a_user(function) else ()
        self.reads_globals |= self._of_arguments and _reads_globals(function)
        return "function", code, defaults, named, closed_over, own

    def _attributes(self, value: Any, inside: tuple[int, ...]) -> Hashable:
        """Return the signature of the attributes that an object may have beside its parts."""
        if type(value) in _WITHOUT_MORE:
            return ()
        if len(inside) > DEEPEST:
            self.may_change = True
            return id(value)
        if not (found := _attributes(value)):
            return ()
        return tuple((name, self._value(found[name], inside)) for name in sorted(found))

    def _object(self, value: Any, inside: tuple[int, ...]) -> Hashable:
        """Identify an object by value if its class defines equality and hashing, else by address.

        A user's class may leave out of its equality what a rule uses, so attributes count as well.

        With `by_contents`, an object is identified by what it holds and where it was visited
        before; but one that holds nothing we can see is a marker, or has its state in C, and has
        its address.
        """
        cls = type(value)
        self._alive[id(value)] = value
        compares = cls.__hash__ is not None
        compares &= cls.__eq__ is not object.__eq__  # type: ignore[comparison-overlap]
        if compares and has_hash(value):
            return cls, value, self._besides(value, inside)
        state = _state(value) if self._by_contents and len(inside) <= DEEPEST else {}
        if not state:
            functions = reflect.functions_of(value)
            self.may_change |= not functions and not reflect.stays_as_it_is(value)
            return "object", id(value), self._values(functions, inside)
        self._outermost = -1
        if id(value) in self._met:
            return "again", self._met[id(value)]
        self._met[id(value)] = len(self._met)
        return cls, tuple((name, self._value(state[name], inside)) for name in sorted(state))

    def _besides(self, value: Any, inside: tuple[int, ...]) -> Hashable:
        """Return what may tell an object from another one that it is equal to."""
        if reflect.is_of_a_user(type(value)):
            return self._attributes(value, inside)
        return repr(value) if isinstance(value, Number) else ()  # a zero, or the other

    def _structure(self, jaxpr: Any) -> Hashable:
        opened = jaxprs.opened(jaxpr)
        numbers: dict[Any, int] = {}
        for var in (*opened.constvars, *opened.invars):
            numbers[var] = len(numbers)
        equations = tuple(self._equation(equation, numbers) for equation in opened.eqns)
        inputs = tuple(var.aval for var in opened.invars)
        outputs = tuple(self._atom(atom, numbers) for atom in opened.outvars)
        constants = tuple(self._value(const, ()) for const in getattr(jaxpr, "consts", ()))
        return inputs, constants, equations, outputs

    def _equation(self, equation: Any, numbers: dict[Any, int]) -> Hashable:
        operands = tuple(self._atom(atom, numbers) for atom in equation.invars)
        params = self._called(equation)
        for var in equation.outvars:
            numbers[var] = len(numbers)
        outputs = tuple(v.aval for v in equation.outvars)
        return equation.primitive, equation.ctx, params, operands, outputs

    def _called(self, equation: Any) -> Hashable:
        """Return a signature of an equation's parameters, ignoring JAX's wrappers of rules."""
        functions = user_rules.rule_functions(equation)
        if functions is None:
            return self.parameters(equation.params)
        bodies = jaxprs.jaxprs_in(equation.params.values())
        return self.rules(equation, functions), tuple(map(self.jaxpr, bodies))

    def _atom(self, atom: Any, numbers: dict[Any, int]) -> Hashable:
        if isinstance(atom, jaxprs.Literal):
            return "literal", atom.aval, str(atom.val) if atom.aval.shape == () else id(atom.val)
        return numbers[atom]

    def _parameter(self, value: Any) -> Hashable:
        if jaxprs.is_jaxpr(value):
            return self.jaxpr(value)
        if type(value) in (tuple, list):
            return tuple(self._parameter(item) for item in value)
        if type(value) is dict:
            return self.parameters(value)
        return self._value(value, ())


def _numbered(atoms: Any) -> dict[Any, int]:
    variables = [atom for atom in atoms if not isinstance(atom, jaxprs.Literal)]
    return {var: number for number, var in enumerate(dict.fromkeys(variables))}


def _parts(value: Any) -> tuple[Any, ...] | None:
    """Return the items of a container, or the value of a number; None if it may hold more.

    Methods of the base class read them, for those of a user's class may say other things.
    """
    kind: Any = type(value)
    base = _base_of(kind)
    return None if base is None else tuple(_OPENED[base](value))


@functools.lru_cache(maxsize=1024)
def _base_of(kind: Any) -> Any:
    """Return the base class whose methods read the parts of a class; None if it may hold more."""
    is_known = kind in _CONTAINERS or kind.__flags__ & _MADE_BY_PYTHON
    return next((each for each in _OPENED if issubclass(kind, each)), None) if is_known else None


def _parts_of_partial(value: Any) -> tuple[Any, ...]:
    return value.func, value.args, tuple(sorted(value.keywords.items()))


_OPENED: dict[Any, Callable[[Any], Iterable[Any]]] = {
    OrderedDict: OrderedDict.items,
    dict: dict.items,
    functools.partial: _parts_of_partial,
    tuple: tuple.__iter__,
    list: list.__iter__,
    frozenset: frozenset.__iter__,
    str: str.__getnewargs__,
    bytes: bytes.__getnewargs__,
    int: int.__getnewargs__,
    float: float.__getnewargs__,
    complex: complex.__getnewargs__,  # type: ignore[attr-defined]
}
_WITHOUT_MORE = frozenset({tuple, list, frozenset, dict})
_CONTAINERS = _WITHOUT_MORE | {OrderedDict, functools.partial}
_MADE_BY_PYTHON = 1 << 9  # of a class, Py_TPFLAGS_HEAPTYPE


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an instance itself, in its dictionary or in slots."""
    kind: Any = type(value)
    found = dict(getattr(value, "__dict__", ()))
    for name, slot in _slots(kind):
        with contextlib.suppress(AttributeError):
            found[name] = slot.__get__(value)
    return found


@functools.lru_cache(maxsize=1024)
def _slots(kind: type) -> list[tuple[str, Any]]:
    every = [slot for cls in kind.__mro__ for slot in vars(cls).items()]
    return [
        (name, slot)
        for name, slot in every
        if isinstance(slot, types.MemberDescriptorType) and not name.startswith("__")
    ]


def _state(value: Any) -> dict[str, Any]:
    """Return the attributes of an instance of a plain class; nothing if it may have more state."""
    cls = type(value)
    if tracing.is_variable(value) or any(
        getattr(cls, name) is not getattr(object, name) for name in _COPYING
    ):
        return {}
    try:
        state = object.__reduce_ex__(value, 2)[2]
    except TypeError:  # it has state in C
        return {}
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    return {**(attributes or {}), **(slots or {})}
