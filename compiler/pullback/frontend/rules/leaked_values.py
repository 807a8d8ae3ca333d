"""Values of a finished trace that a staged rule still reads.

A rule runs when the trace of its function is over. What it reads of that trace is an operand of the
call where `lift.py` finds it. Of the rest, a constant of the trace stands for an array, which takes
its place; anything else is an error.
"""

from __future__ import annotations

from typing import Any

from pullback._jax import jaxprs, tracing
from pullback._jax.holders import lifted_operands


class LeakedError(Exception):
    """A rule uses a value of a finished trace that is neither a constant nor an operand."""

    def __init__(self, value: Any):
        super().__init__(value)
        self.value = value


class TraceConstants:
    """The arrays of the constants of finished traces, such as `jnp.array([0., 1.])`.

    A rule may read such a constant, which is a tracer, from anywhere: a variable, an object, a
    cache. The jaxprs are searched when a rule is found to do so, and not before.
    """

    def __init__(self) -> None:
        self._added: list[Any] = []
        self._searched = 0
        self._arrays: dict[Any, Any] = {}  # None for a variable that is not always the same
        self._seen: dict[Any, Any] = {}

    def add(self, *closed: Any) -> None:
        """Note jaxprs whose constants a rule may read."""
        self._added += closed

    def include(self, other: TraceConstants) -> None:
        """Note what another program has noted, whose rules are used in this one."""
        self._added += other._added

    def array_of(self, tracer: Any) -> Any:
        """Return the array of a constant of a finished trace; None if it is not a constant."""
        while self._searched < len(self._added):
            self._search(self._added[self._searched], {})
            self._searched += 1
        return self._arrays.get(tracing.name_of(tracer))

    def _search(self, jaxpr: Any, given: dict[Any, Any]) -> None:
        """Note the constants of a jaxpr, and those given to it for what it closes over."""
        key = id(jaxpr), *map(id, given.values())
        if key in self._seen:
            return
        self._seen[key] = jaxpr, given
        for variable, array in (*jaxprs.constants_of(jaxpr), *given.items()):
            self._note(variable, array)
        for equation in jaxpr.eqns:
            for parameter, body in jaxprs.bodies_of(equation):
                operands = lifted_operands(equation, parameter, body).items()
                self._search(body, {of: self._array(atom) for of, atom in operands})

    def _array(self, atom: Any) -> Any:
        return None if isinstance(atom, jaxprs.Literal) else self._arrays.get(atom)

    def _note(self, variable: Any, array: Any) -> None:
        is_same = self._arrays.get(variable, array) is array
        has_type = getattr(array, "shape", None) == variable.aval.shape
        is_array = has_type and not tracing.is_tracer(array)
        self._arrays[variable] = array if is_same and is_array else None

    def without_leaks(self, closed: Any) -> Any:
        """Return a staged function that reads no value of a finished trace.

        Raises:
          LeakedError: it reads a value that is not a constant.
        """
        values = [value for _, value in jaxprs.constants_of(closed)]
        if not any(map(tracing.is_tracer, values)):
            return closed
        for i, value in enumerate(values):
            if tracing.is_tracer(value):
                values[i] = self.array_of(value)
            if values[i] is None:
                raise LeakedError(value)
        return jaxprs.closed_with(jaxprs.opened(closed), values)
