"""Which results of two jaxprs lie along the same axes, shown by value numbering.

Two results have their axes alike if the same operations make them of the same arguments. Values of
constants do not matter for that, nor does which elementwise operation it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from pullback._jax import holders, jaxprs, primitives
from pullback.program.memo import has_hash

Layout = frozenset[Hashable]
"""Numbers of the values that an elementwise operation was applied to; empty for a constant."""


def same_layouts(function: Any, rule: Any, closed_over: int) -> list[bool]:
    """Return, for each result of a function, True if its rule has it along the same axes.

    True is proven; False only says that no proof was found.

    Args:
      function: the jaxpr of the function.
      rule: that of its rule, which takes the same arguments, and perhaps more, and whose first
        results are those of the function.
      closed_over: how many of the arguments, the first ones, stand for values that the function
        closes over; the rule may have them as constants instead.
    """
    numbers = _Numbers()
    names: list[Layout] = [frozenset({("argument", i)}) for i in range(len(rule.in_avals))]
    names[:closed_over] = [frozenset()] * closed_over
    ours = numbers.results(function, names[: len(function.in_avals)])
    others = numbers.results(rule, names)
    return [a == b for a, b in zip(ours, others, strict=False)]


class _Numbers:
    """A number for each value: the same for equal operations on values of equal numbers."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._held: list[Any] = []  # what a number was made of by identity stays alive

    def results(self, closed: Any, arguments: Sequence[Layout]) -> list[Layout]:
        """Return the layouts of a jaxpr's results, for those of its arguments."""
        jaxpr = jaxprs.opened(closed)
        of: dict[Any, Layout] = dict(zip(jaxpr.invars, arguments, strict=True))

        def layout(atom: Any) -> Layout:
            return frozenset() if isinstance(atom, jaxprs.Literal) else of.get(atom, frozenset())

        for equation in jaxpr.eqns:
            operands = [*map(layout, equation.invars)]
            body = holders.called_function(equation)
            found: Sequence[Layout]
            if body is not None:
                found = self.results(body, operands)
            elif primitives.is_elementwise(equation.primitive):
                found = [frozenset().union(*operands)] * len(equation.outvars)
            else:
                found = self._results_of(equation, operands)
            of.update(zip(equation.outvars, found, strict=True))
        return [*map(layout, jaxpr.outvars)]

    def _results_of(self, equation: Any, operands: Sequence[Layout]) -> list[Layout]:
        params = tuple((key, self._parameter(v)) for key, v in sorted(equation.params.items()))
        shapes = tuple(getattr(atom.aval, "shape", None) for atom in equation.invars)
        key = equation.primitive, tuple(operands), shapes, params
        number = self._known.setdefault(key, len(self._known))
        return [frozenset({(number, i)}) for i in range(len(equation.outvars))]

    def _parameter(self, value: Any) -> Hashable:
        if jaxprs.is_jaxpr(value):
            arguments = range(len(jaxprs.inputs_of(value)))
            return tuple(self.results(value, [frozenset({("of a body", i)}) for i in arguments]))
        if isinstance(value, (list, tuple)):
            return (type(value), *map(self._parameter, value))
        if has_hash(value):
            return (type(value), value)
        self._held.append(value)
        return ("object", id(value))
