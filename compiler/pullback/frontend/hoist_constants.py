"""Hoist large arrays that a function closes over into hidden arguments of its program.

A constant inside a module is copied by each step that touches the module. So the arrays leave the
jaxpr before it is lowered, also those of functions inside: each call that leads to one forwards it.
In the body of a custom rule they stay, for its operands are the user's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pullback._jax import holders, jaxprs

LARGEST_INLINE = 64
"""Arrays with more elements become arguments."""

LARGEST_MASK = 10_000
"""So do arrays of bools with more elements.

XLA computes ahead what depends on a mask alone, which makes calls faster. But it takes 0.1 µs for
each product of two numbers.
"""

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
                for body in _bodies(equation):
                    arrays |= self._arrays_of_all(equation.params[body])
            self._found[id(jaxpr)] = arrays
        return self._found[id(jaxpr)]

    def _arrays_of_all(self, bodies: Any) -> Arrays:
        arrays: Arrays = {}
        for jaxpr in holders.sequence(bodies):
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
        needed = {name: self._arrays_of_all(equation.params[name]) for name in _bodies(equation)}
        if not any(needed.values()):
            return equation
        new = {name: [variables[key] for key in arrays] for name, arrays in needed.items()}
        return holders.with_constants(
            equation, new, lambda name, body: self.bind(body, needed[name])
        )


def _bodies(equation: Any) -> Iterable[str]:
    """Return the parameters with bodies that get large arrays as operands."""
    holder = holders.holder_of(equation)
    return holder.bodies if holder.grows and not holder.has_rules else ()


def _large(array: Any) -> bool:
    is_mask = getattr(array, "dtype", None) == np.bool_
    return getattr(array, "size", 0) > (LARGEST_MASK if is_mask else LARGEST_INLINE)
