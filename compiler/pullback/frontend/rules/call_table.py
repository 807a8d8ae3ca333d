"""The calls that a program keeps: one key for equal calls, and what held where each was made."""

from __future__ import annotations

import contextlib
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from pullback._jax import jaxprs, named_axes, tracing, user_rules
from pullback.frontend import link
from pullback.frontend.closures import lift, reassigned
from pullback.frontend.closures.same_rule import Identities
from pullback.frontend.rules import leaked_values
from pullback.frontend.rules.kept_call import STOPS, USERS, Batch, KeptCall
from pullback.ir import locations
from pullback.ir.environment import Environment
from pullback.ir.masks import Asked
from pullback.passes.base import Rules


class CallTable(Rules):
    """Rule-carrying calls by key; `RuleTable` traces their rules and links them into modules.

    Attributes:
      environment: of all that was kept until now.
      dimensions: symbols, whose sizes all functions take first.
      hands_on: a rule gives cotangents of other types than its operands have.
      traces: how many rules were traced.
      place: the user's line of the equation at hand, or of the call that it is inside of.
      tracebacks: of the calls that the equation at hand is inside of, and its own.
      policy: of the checkpoint that the equation at hand is in.
      settings: JAX's settings there.
      constants: of traces, which rules may read.
    """

    def __init__(self, platforms: tuple[str, ...], dimensions: tuple[str, ...]) -> None:
        self.environment = Environment(platforms)
        self.dimensions = dimensions
        self.hands_on = False
        self.traces = 0
        self.place: str | None = None
        self.tracebacks: list[Any] = []
        self.policy: Callable[..., Any] | None = None
        self.settings = tracing.settings()
        self.constants = leaked_values.TraceConstants()
        self._rules: dict[str, KeptCall] = {}
        self._keys: dict[Any, str] = {}
        self._numbers: dict[str, int] = {}
        self._adopted: dict[int, tuple[CallTable, dict[str, str]]] = {}
        self._generation = 0
        self._checked_axes = named_axes.axes_checked_here()
        self._identities = Identities()

    @abstractmethod
    def register_backward(self, equation: Any, debug_info: Any) -> KeptCall:
        """Return the rule of a linear call that JAX knows by its transpose only."""

    @abstractmethod
    def traced_rule(self, rule: KeptCall, kind: str, asked: Asked) -> tuple[Any, ...]:
        """Return the functions of a rule, kept but not lowered; raise what `stage` raises."""

    def __getitem__(self, key: str) -> KeptCall:
        return self._rules[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def inside(self, equation: Any) -> contextlib.AbstractContextManager[None]:
        """Enter the body of a `shard_map`: calls registered meanwhile are in it."""
        axes = *self._checked_axes, *named_axes.checked_axes(equation)
        return self._under(axes, self.policy, self.settings)

    def kept_by(self, policy: Callable[..., Any] | None) -> contextlib.AbstractContextManager[None]:
        """Enter a checkpoint with this policy: calls registered meanwhile are in it."""
        return self._under(self._checked_axes, policy, self.settings)

    def as_called(self, equation: Any) -> contextlib.AbstractContextManager[None]:
        """Enter an equation, whose types affect JAX's settings for calls registered meanwhile."""
        settings = self.settings.where(_types_at(equation))
        if settings is self.settings:
            return contextlib.nullcontext()
        return self._under(self._checked_axes, self.policy, settings)

    @contextlib.contextmanager
    def _under(
        self,
        checked_axes: tuple[str, ...],
        policy: Callable[..., Any] | None,
        settings: tracing.Settings,
    ) -> Iterator[None]:
        outer = self._checked_axes, self.policy, self.settings
        self._checked_axes, self.policy, self.settings = checked_axes, policy, settings
        try:
            with settings():
                yield
        finally:
            self._checked_axes, self.policy, self.settings = outer

    def register(self, op: str, equation: Any, debug_info: Any, decomposition: Any) -> KeptCall:
        """Return the rule of a rule-carrying equation: the one of equal calls, or a new one."""
        key, identities = self._find(op, equation, decomposition)
        if key is None:
            key = self._new_key(rule_symbol(equation))
            call = jaxprs.equation_alone(lift.of_operands(equation), debug_info)
            self._rules[key] = self._rule(key, op, equation, call, decomposition)
            self._keys.update(dict.fromkeys(identities, key))
        rule = user_rules.rule_inside(equation).rule
        if rule is not None:
            reassigned.warn(rule, key, self.tracebacks, self.place)
        return self._rules[key]

    def adopt(self, other: CallTable, key: str) -> str:
        """Return the key here of a rule of another table, whose program one of ours calls."""
        if id(other) not in self._adopted:
            self.constants.include(other.constants)
        adopted = self._adopted.setdefault(id(other), (other, {}))[1]
        if key not in adopted:
            rule = other[key]
            if rule.batch is not None:  # of a rule that has a name of its own here, too
                of_one = self._rules[self.adopt(other, rule.batch.rule.key)]
                batch = dataclasses.replace(rule.batch, rule=of_one)
                rule = dataclasses.replace(rule, batch=batch)
            adopted[key] = self._new_key(key)
            self._rules[adopted[key]] = dataclasses.replace(rule, key=adopted[key])
        return adopted[key]

    def batched(self, key: str, flags: tuple[bool, ...], size: int) -> str:
        """Return the key of the rule for a batch of calls with the flagged operands batched."""
        identity = "batch", key, flags, size
        if identity not in self._keys:
            new = self._keys[identity] = self._new_key(f"{key}.batched")
            rule = self._rules[key]
            batch = Batch(rule, flags, size)
            self._rules[new] = dataclasses.replace(rule, key=new, batch=batch)
        return self._keys[identity]

    def stops(self, key: str) -> bool:
        """Return True if a call lets no tangent pass, which is known without staging its rule."""
        return self._rules[key].primitive in STOPS

    def goes_forward(self, key: str) -> bool:
        """Return True if a call with a backward rule has a rule for forward mode, too."""
        return self._rules[key].goes_forward

    def _find(self, op: str, equation: Any, decomposition: Any) -> tuple[str | None, list[Any]]:
        """Return the key of an equal call's rule, if there is one, and the identities looked up."""
        settings = self._checked_axes, self._policy_of(equation), self.settings, equation.ctx
        identities = []
        for by_contents in (False, True) if self._generation else (False,):
            identity = self._identity(equation, decomposition, by_contents)
            identities.append((op, settings, by_contents, identity))
            if (key := self._keys.get(identities[-1])) is not None:
                return key, identities
        return None, identities

    def _identity(self, equation: Any, decomposition: Any, by_contents: bool) -> Any:
        self._identities.begin(by_contents)
        types = tuple(atom.aval for atom in equation.invars)
        functions = user_rules.rule_functions(equation)
        if functions is None:
            params = self._identities.parameters(equation.params)
            return equation.primitive, types, params
        function = self._identities.rules(equation, functions)
        primal = None if decomposition is None else self._identities.jaxpr(decomposition)
        return types, function, primal, _literals(equation)

    def _rule(self, key: str, op: str, equation: Any, call: Any, decomposition: Any) -> KeptCall:
        return KeptCall(
            key=key,
            op=op,
            primitive=jaxprs.name_of(equation),
            call=call,
            decomposition=decomposition,
            num_residuals=user_rules.num_residuals(equation),
            where=self.place or locations.UNKNOWN,
            generation=self._generation,
            settings=self.settings,
            checked_axes=self._checked_axes,
            policy=self._policy_of(equation),
            closed_over=user_rules.rule_inside(equation).closed_over,
            literals=_literals(equation),
        )

    def _policy_of(self, equation: Any) -> Callable[..., Any] | None:
        """Return the checkpoint policy for a call's rules; None if they are not a user's."""
        return self.policy if jaxprs.name_of(equation) in USERS else None

    def _new_key(self, name: str) -> str:
        key, number = name, self._numbers.get(name, 0)
        while key in self._rules:
            number += 1
            key = f"{name}_{number}"
        self._numbers[name] = number  # those below are taken
        return key


def _types_at(equation: Any) -> Iterator[Any]:
    """Yield the types of an equation's operands and results, and of a user's function's values.

    Other functions that it calls are looked at equation by equation.
    """
    yield from (atom.aval for atom in (*equation.invars, *equation.outvars))
    if jaxprs.name_of(equation) in USERS:
        for _, body in jaxprs.bodies_of(equation):
            yield from jaxprs.types_of_values(body)


def _literals(equation: Any) -> tuple[tuple[int, Any], ...]:
    """Return the operands that are Python integers, whose value a backward rule may need."""
    if jaxprs.name_of(equation) != "custom_vjp_call":
        return ()
    literals = (each for each in enumerate(equation.invars) if isinstance(each[1], jaxprs.Literal))
    return tuple((i, atom.val) for i, atom in literals if isinstance(atom.val, int))


def rule_symbol(equation: Any) -> str:
    """Return the name of the function that an equation calls, as a symbol."""
    return link.identifier(user_rules.rule_name(equation) or equation.primitive.name)
