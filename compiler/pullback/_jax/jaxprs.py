"""Query and rewrite jaxprs and their equations.

JAX 0.10 has a `Jaxpr` and a `ClosedJaxpr` around it; JAX 0.12 has one class for both.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import partial_eval as _pe
from jax.extend import core as _extend_core

Var = _extend_core.Var
"""The class of a variable; calling it with a type makes a new one."""

Literal = _extend_core.Literal
"""The class of a constant that stands among an equation's operands."""

_ClosedJaxpr = _extend_core.ClosedJaxpr

CLOSED_AND_OPEN_DIFFER = _ClosedJaxpr is not _extend_core.Jaxpr


JITTED = "jit"
"""The primitive of a call of a jitted function, which is traced once for all of its callers."""


def is_jaxpr(value: object) -> bool:
    """Return True if a parameter of an equation is a jaxpr, open or closed."""
    return isinstance(value, (_ClosedJaxpr, _extend_core.Jaxpr))


_of_jax: set[Any] = set()
_of_others: set[Any] = set()


def is_of_jax(primitive: Any) -> bool:
    """Return True if a primitive is ours or JAX's: one that a module of either holds."""
    if primitive not in _of_jax and primitive.name.startswith("pullback."):
        _of_jax.add(primitive)
    if primitive not in _of_jax and primitive not in _of_others:
        for name, module in sys.modules.copy().items():  # other threads may import
            if name.partition(".")[0] in ("jax", "pullback", "pullback_runtime"):
                known = vars(module).copy().values()
                _of_jax.update(v for v in known if isinstance(v, _extend_core.Primitive))
        if primitive not in _of_jax:
            _of_others.add(primitive)
    return primitive in _of_jax


def name_of(equation: Any) -> str:
    """Return the name of an equation's primitive, with a mark if it is of another library.

    A library's primitive may have the same name as one of JAX's.
    """
    return _name(equation.primitive)


@functools.cache
def _name(primitive: Any) -> str:
    name = str(primitive.name)
    return name if is_of_jax(primitive) else name + OF_A_LIBRARY


OF_A_LIBRARY = " of a library"
"""Suffix that marks the name of a primitive that is neither JAX's nor ours."""


def is_equation(value: object) -> bool:
    """Return True if a value is an equation of a jaxpr."""
    return isinstance(value, _extend_core.JaxprEqn)


def opened(closed: Any) -> Any:
    """Return the open jaxpr in a closed one; an open one as it is."""
    return getattr(closed, "jaxpr", closed)


def close(jaxpr: Any) -> Any:
    """Close an open jaxpr that has no constants; return a closed one as it is."""
    if isinstance(jaxpr, _ClosedJaxpr):
        return jaxpr
    return _ClosedJaxpr(jaxpr, ())


def closed_with(jaxpr: Any, constants: Sequence[Any]) -> Any:
    """Close an open jaxpr with the values of its constants."""
    return _ClosedJaxpr(jaxpr, list(constants))


def inputs_of(jaxpr: Any) -> list[Any]:
    """Return the variables of a jaxpr's arguments."""
    return list(opened(jaxpr).invars)


def outputs_of(jaxpr: Any) -> list[Any]:
    """Return the variables and literals that are a jaxpr's results."""
    return list(opened(jaxpr).outvars)


def constants_of(jaxpr: Any) -> list[tuple[Any, Any]]:
    """Return a closed jaxpr's constants as pairs of variable and value; none of an open one."""
    values = map(_untraced, getattr(jaxpr, "consts", ()))
    return list(zip(opened(jaxpr).constvars, values, strict=False))


def _untraced(value: Any) -> Any:
    """Return the number that a tracer stands for, if JAX has a literal for it; else the value."""
    literal = getattr(value, "val", None) if isinstance(value, jax.core.Tracer) else None
    if not isinstance(literal, Literal):
        return value
    return np.asarray(literal.val, literal.aval.dtype)


def depending(closed: Any, arguments: Sequence[bool]) -> list[bool]:
    """Return which results of a jaxpr depend on the flagged arguments.

    JAX's partial evaluation looks into loops and calls. It is used only where the flagged arguments
    reach one of them, as it rebuilds the jaxpr.
    """
    jaxpr = opened(closed)
    moving = {var for var, moves in zip(jaxpr.invars, arguments, strict=True) if moves}
    for equation in reached(jaxpr, moving):
        if any(True for _ in bodies_of(equation)):
            return list(_pe.partial_eval_jaxpr_nounits(closed, list(arguments), False)[2])
    return [not isinstance(atom, Literal) and atom in moving for atom in jaxpr.outvars]


def reached(jaxpr: Any, moving: set[Any]) -> Iterator[Any]:
    """Yield the equations that depend on variables in `moving`; add their results to it."""
    for equation in opened(jaxpr).eqns:
        if any(not isinstance(atom, Literal) and atom in moving for atom in equation.invars):
            moving.update(equation.outvars)
            yield equation


def argument_paths(closed: Any) -> tuple[str, ...]:
    """Return the path of each argument of a traced function, such as `params['w']`."""
    names, count = opened(closed).debug_info.arg_names or (), len(closed.in_avals)
    if len(names) == count:
        return tuple(names)
    return tuple(f"argument {number}" for number in range(count))


def jaxprs_in(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the jaxprs among parameters of an equation, also those inside tuples and lists."""
    for value in values:
        if is_jaxpr(value):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from jaxprs_in(value)


def bodies_of(equation: Any) -> Iterator[tuple[str, Any]]:
    """Yield each jaxpr (body) among the parameters of an equation, after its parameter's name."""
    for name, value in equation.params.items():
        for body in jaxprs_in((value,)):
            yield name, body


def bodies_fit(jaxpr: Any) -> bool:
    """Return True if all bodies are of jitted calls, with operands of the dtypes they take."""
    return all(
        equation.primitive.name == JITTED
        and [v.aval.dtype for v in equation.invars] == [v.aval.dtype for v in inputs_of(body)]
        for equation in opened(jaxpr).eqns
        for _, body in bodies_of(equation)
    )


def equations_in(jaxpr: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield the equations of a jaxpr, each before those of its bodies; a shared body once."""
    seen = set() if seen is None else seen
    for equation in opened(jaxpr).eqns:
        yield equation
        for _, body in bodies_of(equation):
            if id(body) not in seen:
                seen.add(id(body))
                yield from equations_in(body, seen)


def nesting(jaxpr: Any) -> tuple[int, Any]:
    """Return how deep bodies of equations are nested, and the equation of the innermost one.

    It uses a worklist instead of recursion, and visits a shared body once.
    """
    deepest, found, seen = 0, None, {id(jaxpr)}
    todo = [(jaxpr, 0)]
    while todo:
        outer, depth = todo.pop()
        for equation in opened(outer).eqns:
            for _, body in bodies_of(equation):
                if depth + 1 > deepest:
                    deepest, found = depth + 1, equation
                if id(body) not in seen:
                    seen.add(id(body))
                    todo.append((body, depth + 1))
    return deepest, found


def needed_inputs(closed: Any) -> list[bool]:
    """Return which arguments of a closed jaxpr are live: some result may depend on them."""
    jaxpr = closed.jaxpr
    return _pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1]


_WIDE = frozenset(map(np.dtype, ("float64", "int64", "uint64", "complex128")))


def is_wide(aval: Any) -> bool:
    """Return True if a type's elements have 64 bits, which JAX has only with `jax_enable_x64`."""
    return getattr(aval, "dtype", None) in _WIDE


def types_of_values(jaxpr: Any) -> Iterator[Any]:
    """Yield the types of a jaxpr's arguments and constants, and of all results of its equations."""
    yield from (variable.aval for variable in inputs_of(jaxpr))
    yield from (variable.aval for variable, _ in constants_of(jaxpr))
    yield from (var.aval for equation in equations_in(jaxpr) for var in equation.outvars)


def size_of_constants(closed: Any) -> int:
    """Return the total bytes of the constants of a jaxpr and of the bodies nested in it."""
    bodies = (body for equation in equations_in(closed) for _, body in bodies_of(equation))
    found = {id(x): x for each in (closed, *bodies) for x in getattr(each, "consts", ())}
    return sum(getattr(x, "nbytes", 0) for x in found.values())


def map_jaxprs(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the jaxprs in an equation's parameter, also inside tuples and lists."""
    if is_jaxpr(value):
        return function(value)
    if isinstance(value, (tuple, list)) and any(is_jaxpr(item) for item in value):
        items = [map_jaxprs(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def with_bodies(equation: Any, function: Callable[[str, Any], Any]) -> Any:
    """Replace each body of an equation with `function(name of its parameter, body)`."""
    params, changed = equation.params, {}
    for name, value in params.items():
        new = map_jaxprs(functools.partial(function, name), value)
        if new is not value:
            changed[name] = new
    return equation.replace(params={**params, **changed}) if changed else equation


def with_outputs(closed: Any, outputs: list[Any]) -> Any:
    """Replace the results of a closed jaxpr by other values that it computes or takes."""
    info = opened(closed).debug_info._replace(arg_names=None, result_paths=None)
    return replaced(closed, outvars=outputs, debug_info=info)


def replaced(jaxpr: Any, **changes: Any) -> Any:
    """Return a jaxpr, open or closed, with other attributes, such as `eqns`."""
    if CLOSED_AND_OPEN_DIFFER and isinstance(jaxpr, _ClosedJaxpr):
        return jaxpr.replace(jaxpr=jaxpr.jaxpr.replace(**changes))
    return jaxpr.replace(**changes)


def with_arguments(
    jaxpr: Any, leading: Sequence[Any], constants: Sequence[tuple[Any, Any]], equations: list[Any]
) -> Any:
    """Add leading arguments to a jaxpr, and replace its constants and equations."""
    inner = opened(jaxpr)
    names = inner.debug_info.arg_names
    if names is not None:
        names = (*[""] * len(leading), *names)
    changed = _extend_core.Jaxpr(
        [variable for variable, _ in constants],
        [*leading, *inner.invars],
        inner.outvars,
        equations,
        inner.effects,
        inner.debug_info._replace(arg_names=names, result_paths=None),
    )
    closed = isinstance(jaxpr, _ClosedJaxpr)
    return _ClosedJaxpr(changed, [value for _, value in constants]) if closed else changed


def with_constants_as_arguments(jaxpr: Any) -> Any:
    """Turn the constants of an open jaxpr into leading arguments."""
    return _pe.convert_constvars_jaxpr(jaxpr)


def with_operands(
    closed: Any, arguments: list[Any], constants: Sequence[tuple[Any, Any]], chosen: dict[Any, Any]
) -> Any:
    """Replace the arguments and constants of a jaxpr, and substitute variables by `chosen`."""

    def current(atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else chosen.get(atom, atom)

    jaxpr = opened(closed)
    changed = _extend_core.Jaxpr(
        [variable for variable, _ in constants],
        arguments,
        [*map(current, outputs_of(closed))],
        [each.replace(invars=[*map(current, each.invars)]) for each in jaxpr.eqns],
        jaxpr.effects,
        jaxpr.debug_info._replace(arg_names=None, result_paths=None),
        jaxpr.is_high,
    )
    return _ClosedJaxpr(changed, [value for _, value in constants])


def equation_alone(equation: Any, debug_info: Any) -> Any:
    """Return a closed jaxpr of one equation; its arguments are all operands, even literals."""
    invars = [_extend_core.Var(atom.aval) for atom in equation.invars]
    outvars = [_extend_core.Var(var.aval) for var in equation.outvars]
    alone = equation.replace(invars=invars, outvars=outvars)
    info = debug_info._replace(arg_names=None, result_paths=None)
    effects = equation.effects
    return close(_extend_core.Jaxpr((), invars, outvars, [alone], effects, info))
