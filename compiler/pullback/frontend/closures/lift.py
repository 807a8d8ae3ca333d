"""Convert closures of rules: what they close over becomes operands of their calls.

JAX turns the values that a function with rules closes over into leading operands of its call, and
takes the rules to close over nothing. But a rule that closes over a value reads it from the trace
that the call was in, which is over when the rule runs; and it would read the same value where the
call is mapped, or made once more for other arguments. It is the operand that is meant.

So before anything else is done with a jaxpr, one walk does two things for each call in it. What
only the rules close over is passed to the call, and to each call around it, from where the value
is. And the rules are wrapped in others that take all operands and find there what they close over.
In the jaxpr of a rule, this is done again, for the calls in it. A value that is not an operand even
so is left for leaked_values.py to judge once the rule has been traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from pullback._jax import derivatives, holders, jaxprs, tracing, user_rules
from pullback._jax.holders import holder_of, lifted_operands
from pullback._jax.reads import parameter
from pullback.frontend.closures.reflect import reachable

Meanings = Mapping[Any, tuple[Any, ...]]
"""For each variable of a jaxpr, the names of the values of other traces that it stands for."""


def close(closed: Any) -> Any:
    """Return a jaxpr whose rules read what they close over from the operands of their calls."""
    return _Lifting().lifted(closed, {})


def close_among(closed: Any, lifted: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Close a jaxpr that was traced while other traces go on; it may take more of their values.

    Args:
      lifted: values of these, which its first arguments stand for.

    Returns:
      The jaxpr, and all such values that it takes: first those that only rules use.
    """
    lifting, had = _Lifting(), set(map(tracing.name_of, lifted))
    needed = lifting.found_in(closed).values.items()
    more = [value for name, value in needed if name not in had and tracing.is_going_on(value)]
    leading = [jaxprs.Var(jax.typeof(value)) for value in more]
    values = [*more, *lifted]
    pairs = zip([*leading, *jaxprs.inputs_of(closed)], values, strict=False)
    meanings = {variable: (tracing.name_of(value),) for variable, value in pairs}
    return lifting.lifted(closed, meanings, leading), values


class _Found(NamedTuple):
    """Hold what the rules of calls in a jaxpr close over.

    Attributes:
      calls: by position of each equation with such rules, and by parameter with its bodies, the
        values from outside of these, by name, that are not operands of the calls yet.
      values: those from outside of the jaxpr.
      variables: the variables of the jaxpr that are operands of the calls.
    """

    calls: dict[int, dict[str, dict[Any, Any]]]
    values: dict[Any, Any]
    variables: set[Any]


class _Lifting:
    """A memoized rewriter: a jaxpr that many calls share stays shared if it means the same."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, _Found]] = {}
        self._without_tracers: dict[int, Any] = {}
        self._lifted: dict[Any, tuple[Any, Any]] = {}

    def found_in(self, jaxpr: Any) -> _Found:
        """Return what the rules of calls in a jaxpr, and in its bodies, close over."""
        if id(jaxpr) not in self._found:
            self._found[id(jaxpr)] = jaxpr, self._find(jaxpr)
        return self._found[id(jaxpr)][1]

    def _find(self, jaxpr: Any) -> _Found:
        found, own = _Found({}, {}, set()), {*jaxprs.inputs_of(jaxpr)}
        for position, equation in enumerate(jaxpr.eqns):
            if (holder := holder_of(equation)).bodies:
                atoms, by_parameter = self._of_call(equation)
                found.variables.update(a for a in atoms if not isinstance(a, jaxprs.Literal))
                if by_parameter:
                    found.calls[position] = by_parameter
                for values in by_parameter.values() if holder.grows else ():
                    found.values.update({k: v for k, v in values.items() if k not in own})
            own.update(equation.outvars)
        return found

    def _of_call(self, equation: Any) -> tuple[list[Any], dict[str, dict[Any, Any]]]:
        """Return the operands that rules in a call close over, and the values by parameter."""
        atoms: list[Any] = []
        by_parameter: dict[str, dict[Any, Any]] = {}
        for name, body in jaxprs.bodies_of(equation):
            if (inside := self.found_in(body)).calls:
                operands = lifted_operands(equation, name, body)
                atoms += (operands[v] for v in inside.variables if v in operands)
                by_parameter.setdefault(name, {}).update(inside.values)
        rule = user_rules.rule_inside(equation)
        outside = self._closed_over(equation, rule.known) if holder_of(equation).has_rules else {}
        if rule.closed_over or outside:
            atoms += equation.invars[: rule.closed_over]
            by_parameter.setdefault("call_jaxpr", {}).update(outside)
        return atoms, by_parameter

    def _closed_over(self, equation: Any, known: Mapping[Any, int]) -> dict[Any, Any]:
        """Return the traced values that a call's rules close over and that are not operands yet."""
        rules = user_rules.rule_functions(equation)
        count = len(self._without_tracers)
        held = reachable(rules, backward=True, seen=self._without_tracers)
        tracers = [*filter(tracing.is_tracer, held)]
        while tracers and len(self._without_tracers) > count:  # these may lead to one
            self._without_tracers.popitem()
        named = {tracing.name_of(tracer): tracer for tracer in tracers}
        return {name: tracer for name, tracer in named.items() if name not in known}

    def lifted(self, jaxpr: Any, meanings: Meanings, leading: Sequence[Any] = ()) -> Any:
        """Rewrite a jaxpr to take `leading` first, given what its variables stand for."""
        calls = self.found_in(jaxpr).calls
        if not calls and not leading:
            return jaxpr
        here = {name: variable for variable, names in meanings.items() for name in names}
        here |= {variable: variable for variable in jaxprs.inputs_of(jaxpr)}
        equations = list(jaxpr.eqns)
        for position, equation in enumerate(jaxpr.eqns):
            if position in calls:
                equations[position] = self._call(equation, calls[position], meanings, here)
            here |= {variable: variable for variable in equation.outvars}
        if not leading:
            return jaxprs.replaced(jaxpr, eqns=equations)
        return jaxprs.with_arguments(jaxpr, leading, jaxprs.constants_of(jaxpr), equations)

    def _call(
        self,
        equation: Any,
        needed: Mapping[str, Mapping[Any, Any]],
        meanings: Meanings,
        here: Mapping[Any, Any],
    ) -> Any:
        """Return a call with operands for what its rules, and those inside of it, close over.

        Args:
          needed: the values, by parameter and name.
          here: the variables of the jaxpr, by names of the values that they hold.
        """
        holder = holder_of(equation)
        handed = {name: _handed(equation, name) for name in needed if holder.grows}
        new = {}
        for name, atoms in handed.items():
            wanted = dict.fromkeys(here[value] for value in needed[name] if value in here)
            new[name] = [variable for variable in wanted if variable not in atoms]

        def change(name: str, body: Any) -> Any:
            operands = dict(zip(jaxprs.inputs_of(body), handed.get(name, ()), strict=False))
            operands |= lifted_operands(equation, name, body)
            added = {jaxprs.Var(variable.aval): variable for variable in new.get(name, ())}
            return self._body(body, _meanings(operands, meanings), _meanings(added, meanings))

        changed = holders.with_constants(equation, new, change)
        return of_operands(changed, meanings) if holder.has_rules else changed

    def _body(self, body: Any, meanings: Meanings, added: Meanings) -> Any:
        """Return a body with more arguments, given what these and its own ones stand for."""
        found = self.found_in(body)
        here = {
            variable: names
            for variable, names in meanings.items()
            if variable in found.variables or not found.values.keys().isdisjoint(names)
        }
        key = id(body), tuple(added.values()), tuple(here.items())
        if key not in self._lifted:
            self._lifted[key] = body, self.lifted(body, {**here, **added}, [*added])
        return self._lifted[key][1]


def _handed(equation: Any, name: str) -> Sequence[Any]:
    """Return the operands that bodies are known to close over.

    Branches have the same operands, but not all of them may tell which they close over.
    """
    if holder_of(equation).has_rules:
        count = user_rules.rule_inside(equation).closed_over
    else:
        bodies = holders.sequence(equation.params[name])
        count = min(len(holders.lifted_arguments(equation, name, body)) for body in bodies)
    return holders.operands_of(equation, name)[:count]


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
    if not holder_of(equation).has_rules or inside.closed:
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
    return _Lifting().lifted(changed, meanings)
