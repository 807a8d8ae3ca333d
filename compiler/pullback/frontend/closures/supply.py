"""Closure conversion of calls: values that only a rule closes over become operands as well.

JAX makes operands of what a function with rules closes over. It does not look into the rules, which
run when the trace is over. So what only they close over is passed here to the call, and to each
call around it, from where the value is; `lift.py` then finds it among the operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from pullback._jax import call_operands, jaxprs, tracing, user_rules
from pullback.frontend.closures.reflect import reachable
from pullback.frontend.hoist_constants import BODIES, Bodies, sequence, with_constants

Values = dict[Any, Any]
"""Values of a trace, by name."""

Scope = dict[Any, Any]
"""Variables of a jaxpr, by the names of the values that they hold."""

CALLS: Bodies = dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), (("call_jaxpr", 0),))
"""Calls with rules, and the parameter that holds the function."""


class Supply:
    """A memoized rewriter: a jaxpr that many calls share stays shared, if the same is in scope."""

    def __init__(self) -> None:
        self._needed: dict[int, tuple[Any, Values]] = {}
        self._of_rules: dict[int, Values] = {}
        self._without_tracers: dict[int, Any] = {}
        self._with_rules: set[int] = set()  # jaxprs in which a rule closes over anything
        self._rewritten: dict[Any, tuple[Any, Any]] = {}

    def with_values_around(self, jaxpr: Any, lifted: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return a function that takes what its rules use of unfinished traces, and these values.

        Args:
          lifted: the values that it takes already.
        """
        had = set(map(tracing.name_of, lifted))
        needed = self.needed(jaxpr).items()
        more = [value for name, value in needed if name not in had and tracing.is_going_on(value)]
        if not more:
            return jaxpr, list(lifted)
        leading = [jaxprs.Var(jax.typeof(value)) for value in more]
        changed = jaxprs.with_arguments(jaxpr, leading, jaxprs.constants_of(jaxpr), jaxpr.eqns)
        return changed, [*more, *lifted]

    def supplied(self, jaxpr: Any, meanings: Mapping[Any, tuple[Any, ...]]) -> Any:
        """Return the jaxpr with operands for its rules; `meanings` is what variables stand for."""
        scope = {name: variable for variable, names in meanings.items() for name in names}
        return self.rewritten(jaxpr, scope)

    def needed(self, jaxpr: Any) -> Values:
        """Return the values from outside of a jaxpr that the rules of calls in it may use."""
        if id(jaxpr) not in self._needed:
            found: Values = {}
            own = {*jaxprs.inputs_of(jaxpr)}
            for equation in jaxpr.eqns:
                for parameter, _ in _BODIES.get(jaxprs.name_of(equation), ()):
                    inside = self._needed_in(equation, parameter)
                    found |= {name: value for name, value in inside.items() if name not in own}
                    if inside or self._has_rules(equation, parameter):
                        self._with_rules.add(id(jaxpr))
                own.update(equation.outvars)
            self._needed[id(jaxpr)] = jaxpr, found
        return self._needed[id(jaxpr)][1]

    def _needed_in(self, equation: Any, parameter: str) -> Values:
        """Return the outside values that the bodies in a parameter and the call's rules need."""
        found: Values = {}
        for body in sequence(equation.params[parameter]):
            found |= self.needed(body)
        if jaxprs.name_of(equation) in CALLS:
            if id(equation) not in self._of_rules:
                self._of_rules[id(equation)] = self._closed_over(equation)
            found |= self._of_rules[id(equation)]
        return found

    def _closed_over(self, equation: Any) -> Values:
        """Return the traced values that a call's rules close over and that are not operands yet."""
        rules, known = user_rules.rule_functions(equation), user_rules.rule_inside(equation).known
        count = len(self._without_tracers)
        held = reachable(rules, backward=True, seen=self._without_tracers)
        tracers = [*filter(tracing.is_tracer, held)]
        while tracers and len(self._without_tracers) > count:  # these may lead to one
            self._without_tracers.popitem()
        named = {tracing.name_of(tracer): tracer for tracer in tracers}
        return {name: tracer for name, tracer in named.items() if name not in known}

    def _has_rules(self, equation: Any, parameter: str) -> bool:
        return any(id(body) in self._with_rules for body in sequence(equation.params[parameter]))

    def rewritten(self, jaxpr: Any, scope: Scope, leading: Sequence[Any] = ()) -> Any:
        """Return the jaxpr with `leading` as its first arguments, given what is in scope."""
        self.needed(jaxpr)
        if not leading and id(jaxpr) not in self._with_rules:
            return jaxpr
        here, equations = dict(scope), []
        here |= {variable: variable for variable in jaxprs.inputs_of(jaxpr)}
        for equation in jaxpr.eqns:
            equations.append(self._equation(equation, here))
            here |= {variable: variable for variable in equation.outvars}
        return jaxprs.with_arguments(jaxpr, leading, jaxprs.constants_of(jaxpr), equations)

    def _equation(self, equation: Any, scope: Scope) -> Any:
        """Return the call with operands for the values that it needs and that are in scope."""
        bodies = _BODIES.get(jaxprs.name_of(equation), ())
        needed = [self._needed_in(equation, parameter) for parameter, _ in bodies]
        if not any(needed) and not any(self._has_rules(equation, of) for of, _ in bodies):
            return equation
        handed = [_handed(equation, *of) for of in bodies]
        known = [{name: scope[name] for name in each if name in scope} for each in needed]
        pairs = zip(known, handed, strict=True)
        new = [[v for v in dict.fromkeys(k.values()) if v not in h] for k, h in pairs]

        def change(i: int, body: Any) -> Any:
            return self._body(body, known[i], handed[i], new[i])

        return with_constants(equation, bodies, new, change)

    def _body(self, body: Any, known: Scope, handed: dict[Any, int], new: list[Any]) -> Any:
        """Return a body that gets variables of its caller, as arguments it has or as new ones."""
        key = id(body), *((name, handed.get(v, v)) for name, v in known.items())
        if key not in self._rewritten:
            own = jaxprs.inputs_of(body)
            fresh = {variable: jaxprs.Var(variable.aval) for variable in new}
            scope = {n: own[handed[v]] if v in handed else fresh[v] for n, v in known.items()}
            self._rewritten[key] = body, self.rewritten(body, scope, [*fresh.values()])
        return self._rewritten[key][1]


_BODIES = BODIES | CALLS


def _handed(equation: Any, parameter: str, start: int | str) -> dict[Any, int]:
    """Return the operands that bodies are known to close over, each with its argument's number.

    Branches have the same operands, but not all of them may tell which they close over.
    """
    if jaxprs.name_of(equation) in CALLS:
        count = user_rules.rule_inside(equation).closed_over
    else:
        bodies = sequence(equation.params[parameter])
        count = min(
            len(call_operands.lifted_arguments(equation, parameter, body)) for body in bodies
        )
    at = equation.params[start] if isinstance(start, str) else start
    atoms = enumerate(equation.invars[at : at + count])
    return {atom: i for i, atom in atoms if not isinstance(atom, jaxprs.Literal)}
