"""Closure conversion of rules: what they close over is read from the operands of their calls.

JAX turns the values that a function with rules closes over into leading operands of its call, and
takes the rules to close over nothing. But a rule that closes over the same value reads it from the
trace that the call was in, which is over when the rule runs; and it would read the same value where
the call is mapped, or made once more for other arguments. It is the operand that is meant.

So before anything else is done with a jaxpr, each call gets what its rules close over as operands
(supply.py), and its rules are wrapped in others that take all operands and find there what they
close over. In the jaxpr of a rule, this is done again, for the calls in it. A value that is not an
operand even so is left for leaked_values.py to judge once the rule has been traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from pullback._jax import call_operands, derivatives, jaxprs, tracing, user_rules
from pullback._jax.reads import parameter
from pullback.frontend.closures.supply import CALLS, Supply
from pullback.frontend.hoist_constants import BODIES
from pullback.frontend.native import RECURSED

Meanings = Mapping[Any, tuple[Any, ...]]
"""For each variable of a jaxpr, the names of the values of other traces that it stands for."""

# By primitive and parameter, where the operands of the function in there begin.
_BODIES = {name: dict(bodies) for name, bodies in (BODIES | CALLS).items()}
_BODIES["shard_map"] = {"jaxpr": 0}  # what it closes over is whole on every device

# JAX's, and ours. A primitive of a library may hold a function twice, and compare.
_WITH_CALLS = RECURSED | _BODIES.keys() | {"linear_call", "custom_linear_solve"}


def close(closed: Any, meanings: Meanings | None = None, supply: Supply | None = None) -> Any:
    """Return the jaxpr with rules that read what they close over from the operands of their calls.

    `supply` is the one that has seen the jaxpr before, if there is one.
    """
    meanings, supply = meanings or {}, supply or Supply()
    return _Closing().close(supply.supplied(closed, meanings), meanings)


class _Closing:
    """A memoized rewriter: a jaxpr that many calls share stays shared if it means the same."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, dict[int, list[Any]]]] = {}
        self._closed: dict[Any, Any] = {}

    def close(self, jaxpr: Any, meanings: Meanings) -> Any:
        """Rewrite a jaxpr, given the values of other traces that its variables stand for."""
        calls = self._calls_in(jaxpr)
        if not calls:
            return jaxpr
        lifted = dict.fromkeys(variable for found in calls.values() for variable in found)
        here = {variable: meanings[variable] for variable in lifted if variable in meanings}
        key = id(jaxpr), tuple(here.items())
        if key not in self._closed:
            equations = list(jaxpr.eqns)
            for position in calls:
                equations[position] = self._equation(equations[position], here)
            self._closed[key] = jaxprs.with_like_equations(jaxpr, equations)
        return self._closed[key]

    def _calls_in(self, jaxpr: Any) -> dict[int, list[Any]]:
        """Return the positions of equations with calls of rules, and what these close over."""
        if id(jaxpr) not in self._found:
            every = enumerate(map(self._lifted_by, jaxpr.eqns))
            calls = {position: found for position, found in every if found is not None}
            self._found[id(jaxpr)] = jaxpr, calls
        return self._found[id(jaxpr)][1]

    def _lifted_by(self, equation: Any) -> list[Any] | None:
        """Return the operands that calls with rules in an equation close over; None without any."""
        groups = []
        if count := user_rules.rule_inside(equation).closed_over:
            groups.append(equation.invars[:count])
        is_known = jaxprs.name_of(equation) in _WITH_CALLS
        for name, body in jaxprs.bodies_of(equation) if is_known else ():
            if calls := self._calls_in(body):
                operands = lifted_operands(equation, name, body)
                inside = [variable for found in calls.values() for variable in found]
                groups.append([operands[variable] for variable in inside if variable in operands])
        atoms = [atom for group in groups for atom in group]
        return [atom for atom in atoms if not isinstance(atom, jaxprs.Literal)] if groups else None

    def _equation(self, equation: Any, meanings: Meanings) -> Any:
        def closed(name: str, body: Any) -> Any:
            return self.close(body, _meanings(lifted_operands(equation, name, body), meanings))

        return of_operands(jaxprs.with_bodies(equation, closed), meanings)


def lifted_operands(equation: Any, parameter: str, body: Any) -> dict[Any, Any]:
    """Return the operands that a body of an equation closes over, by its variables for them."""
    start = _BODIES.get(jaxprs.name_of(equation), {}).get(parameter)
    if start is None:
        return {}
    at = equation.params[start] if isinstance(start, str) else start
    lifted = call_operands.lifted_arguments(equation, parameter, body)
    return dict(zip(lifted, equation.invars[at:], strict=False))


def _meanings(operands: Mapping[Any, Any], meanings: Meanings) -> Meanings:
    """Return what variables mean that hold these operands: the operand itself, and its meanings."""
    return {
        variable: (atom, *meanings.get(atom, ()))
        for variable, atom in operands.items()
        if not isinstance(atom, jaxprs.Literal)
    }


def of_operands(equation: Any, meanings: Meanings | None = None) -> Any:
    """Return a call with its rules wrapped to take all operands; other equations as they are."""
    inside = user_rules.rule_inside(equation)
    if jaxprs.name_of(equation) not in CALLS or inside.closed:
        return equation
    leading = dict(enumerate(equation.invars[: inside.closed_over]))
    positions = _meanings(leading, meanings or {})
    known = {name: position for position, names in positions.items() for name in names}
    added = [atom.aval for atom in equation.invars[: parameter(equation, "num_consts")]]

    def made(kind: Any) -> Any:
        return lambda rule: kind(rule, added, inside.closed_over, known)

    if jaxprs.name_of(equation) == "custom_jvp_call":
        return user_rules.with_rules(equation, made(_Jvp), None)
    return user_rules.with_rules(equation, made(_Fwd), made(_Bwd) if inside.closed_over else None)


class _Forward(user_rules.RuleOfOperands):
    """A `jvp` or `fwd` rule that returns its jaxpr, given flags for the tangents that are zero."""

    def __call__(self, *flags: bool) -> Any:
        """Return the jaxpr, its constants, and what else JAX keeps with them."""
        if flags not in self.made:
            self.made[flags] = self._jaxpr(flags)
        return self.made[flags]

    def _jaxpr(self, flags: tuple[bool, ...]) -> Any:
        count = len(self.added)
        jaxpr, constants, *more = self.rule.call_wrapped(*flags[count:])
        closed = jaxprs.closed_with(jaxpr, constants)
        arguments = jaxprs.inputs_of(closed)
        primals = [*map(jaxprs.Var, self.added), *arguments[: len(flags) - count]]
        tangents = [*self._ignored(flags[:count]), *arguments[len(flags) - count :]]
        self.traced.append(closed)
        found = _closed_rule(closed, primals, tangents, self.known)
        return jaxprs.opened(found), found.consts, *more

    def _ignored(self, flags: Sequence[bool]) -> list[Any]:
        """Return variables for the (ignored) tangents of what the function closes over."""
        raise NotImplementedError


class _Jvp(_Forward):
    def _ignored(self, zero: Sequence[bool]) -> list[Any]:
        pairs = zip(self.added, zero, strict=True)
        return [jaxprs.Var(aval.to_tangent_aval()) for aval, is_zero in pairs if not is_zero]


class _Fwd(_Forward):
    def _ignored(self, perturbed: Sequence[bool]) -> list[Any]:
        if any(perturbed):
            raise derivatives.CustomVJPException
        return []


class _Bwd(user_rules.RuleOfOperands):
    """A `bwd` rule that takes what it closes over, then residuals and cotangents."""

    def __call__(self, *values: Any) -> Any:
        """Return the cotangents of all operands."""
        operands, given = values[: self.closed_over], values[self.closed_over :]
        places = [i for i, value in enumerate(given) if not derivatives.is_zero(value)]
        results: list[Any] = []

        def arrays(*moving: Any) -> list[Any]:
            full = list(given)
            for i, value in zip(places, moving, strict=True):
                full[i] = value
            leaves, tree = jax.tree.flatten(
                self.rule.call_wrapped(*full), is_leaf=derivatives.is_zero
            )
            results[:] = [leaf if derivatives.is_zero(leaf) else None for leaf in leaves], tree
            return [leaf for leaf in leaves if not derivatives.is_zero(leaf)]

        closed = tracing.traced(arrays, *tracing.structs(jax.typeof(given[i]) for i in places))
        self.traced.append(closed)
        leading = [jaxprs.Var(jax.typeof(value)) for value in operands]
        found = _closed_rule(closed, leading, jaxprs.inputs_of(closed), self.known)
        outs = iter(tracing.apply(found, [*operands, *(given[i] for i in places)]))
        zeros, tree = results  # and no value of the trace, which is over
        returned = tree.unflatten([next(outs) if zero is None else zero for zero in zeros])
        return derivatives.with_no_cotangents(self.added, returned)


def _closed_rule(
    closed: Any, operands: list[Any], others: list[Any], known: Mapping[Any, int]
) -> Any:
    """Rewrite a rule to take `operands` and `others`, and to read known values from operands."""
    constants, chosen = [], {}
    for variable, value in jaxprs.constants_of(closed):
        position = known.get(tracing.name_of(value)) if tracing.is_tracer(value) else None
        if position is None:
            constants.append((variable, value))
        else:
            chosen[variable] = operands[position]
    meanings: dict[Any, tuple[Any, ...]] = {}
    for name, position in known.items():
        meanings[operands[position]] = (*meanings.get(operands[position], ()), name)
    changed = jaxprs.with_operands(closed, [*operands, *others], constants, chosen)
    return close(changed, meanings)
