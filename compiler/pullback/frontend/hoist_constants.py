"""Hoist large arrays that a function closes over into hidden arguments of its program.

A constant inside a module is copied by each step that touches the module. So the arrays leave the
jaxpr before it is lowered, also those of functions inside: each call that leads to one forwards it.
In the body of a custom rule they stay, for its operands are the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback._jax import call_operands, jaxprs

LARGEST_INLINE = 64
"""Arrays with more elements become arguments."""

Bodies = dict[str, tuple[tuple[str, int | str], ...]]

BODIES: Bodies = {
    "jit": (("jaxpr", 0),),
    "scan": (("jaxpr", 0),),
    "while": (("cond_jaxpr", 0), ("body_jaxpr", "cond_nconsts")),
    "cond": (("branches", 1),),
    "remat2": (("jaxpr", 0),),
}
"""The parameters of a call that hold its functions, and where the operands of each begin."""

Arrays = dict[int, tuple[Any, Any]]  # by identity: the array, and its type


def hoist(closed: Any) -> tuple[Any, list[Any]]:
    """Return a closed jaxpr with its large constants as leading arguments, and these constants."""
    hoisting = _Hoisting()
    arrays = hoisting.arrays_of(closed)
    return hoisting.bind(closed, arrays), [array for array, _ in arrays.values()]


class _Hoisting:
    """A memoized rewriter: a jaxpr that many calls share stays shared."""

    def __init__(self) -> None:
        self._found: dict[int, Arrays] = {}
        self._bound: dict[tuple[int, tuple[int, ...]], tuple[Any, Any]] = {}

    def arrays_of(self, jaxpr: Any) -> Arrays:
        """Return the large constants of a jaxpr and of the functions that it calls."""
        if id(jaxpr) not in self._found:
            constants = jaxprs.constants_of(jaxpr)
            arrays = {id(array): (array, var.aval) for var, array in constants if _large(array)}
            for equation in jaxpr.eqns:
                for body, _ in BODIES.get(jaxprs.name_of(equation), ()):
                    arrays |= self._arrays_of_all(equation.params[body])
            self._found[id(jaxpr)] = arrays
        return self._found[id(jaxpr)]

    def _arrays_of_all(self, bodies: Any) -> Arrays:
        arrays: Arrays = {}
        for jaxpr in sequence(bodies):
            arrays |= self.arrays_of(jaxpr)
        return arrays

    def bind(self, jaxpr: Any, arrays: Arrays) -> Any:
        """Return the jaxpr with these arrays as leading arguments, in this order."""
        if not arrays:
            return jaxpr
        key = id(jaxpr), tuple(arrays)
        if key not in self._bound:
            self._bound[key] = jaxpr, self._bind(jaxpr, arrays)
        return self._bound[key][1]

    def _bind(self, jaxpr: Any, arrays: Arrays) -> Any:
        own = {id(array): var for var, array in jaxprs.constants_of(jaxpr)}
        variables = {key: own.get(key) or jaxprs.Var(aval) for key, (_, aval) in arrays.items()}
        bound = set(variables.values())
        small = [(var, array) for var, array in jaxprs.constants_of(jaxpr) if var not in bound]
        equations = [self._equation(equation, variables) for equation in jaxpr.eqns]
        return jaxprs.with_arguments(jaxpr, list(variables.values()), small, equations)

    def _equation(self, equation: Any, variables: dict[int, Any]) -> Any:
        """Return the call with the arrays that its functions need as operands."""
        name, params = jaxprs.name_of(equation), equation.params
        bodies = BODIES.get(name, ())
        needed = [self._arrays_of_all(params[body]) for body, _ in bodies]
        if not any(needed):
            return equation
        new = [[variables[key] for key in arrays] for arrays in needed]
        return with_constants(equation, bodies, new, lambda i, body: self.bind(body, needed[i]))


def with_constants(
    equation: Any,
    bodies: Sequence[tuple[str, int | str]],
    new: Sequence[Sequence[Any]],
    change: Callable[[int, Any], Any],
) -> Any:
    """Return a call with more operands, before those of each of its functions.

    Args:
      bodies: the parameters that hold the functions, as in `BODIES`.
      new: the operands, for each of them.
      change: takes the index of a parameter and a function in it; returns one that takes them.
    """
    params, operands = equation.params, list(equation.invars)
    changed = call_operands.with_more_constants(
        jaxprs.name_of(equation), params, list(map(len, new))
    )
    for i, (parameter, start) in reversed(list(enumerate(bodies))):
        at = params[start] if isinstance(start, str) else start
        operands[at:at] = new[i]
        functions = [change(i, body) for body in sequence(params[parameter])]
        several = isinstance(params[parameter], tuple)
        changed[parameter] = tuple(functions) if several else functions[0]
    return equation.replace(invars=operands, params=changed)


def _large(array: Any) -> bool:
    return getattr(array, "size", 0) > LARGEST_INLINE


def sequence(bodies: Any) -> Sequence[Any]:
    """Return the functions that a parameter of a call holds, one or several, as a sequence."""
    return bodies if isinstance(bodies, tuple) else (bodies,)
