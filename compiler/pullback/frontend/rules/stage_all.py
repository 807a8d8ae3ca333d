"""Stage every rule that derivatives of a module can reach, so that they need no Python."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from pullback._jax import ir, jaxprs
from pullback.autodiff.reachable_calls import Meeting, Meetings, order_of
from pullback.errors import MissingRuleError
from pullback.frontend.rules.wanted_rules import (
    Arguments,
    CallRules,
    Found,
    Wanted,
    asked_for_types,
    rules_in,
)
from pullback.ir import ops
from pullback.ir.masks import singles
from pullback.ir.ops import REFUSED, RULE
from pullback.ir.warn import warn_user
from pullback.program.progress import Progress
from pullback_runtime._jax import operations_where

if TYPE_CHECKING:
    from pullback.frontend.rules.call_table import CallTable
    from pullback.frontend.rules.kept_call import KeptCall

LAST_ORDER = 9
"""Rules are staged up to this order. Most end sooner, in a rule that calls its own function;
some never end, because every derivative is a function of its own, as for a Maclaurin series."""

LAST_OF_MANY = 3
"""The last order if there is much already: rules of `odeint` solve a larger system each time.

Saving a small `diffrax` backsolve took 120 s up to order 4 and takes 40 s, on two cores."""

MANY_OPS, MANY_RULES = 5_000, 40
"""More ops of rules, or rules of rules, than programs have whose rules end soon."""

MOST_RULES = 1500
"""More rules of rules than any program needs whose equal rules are found to be equal."""

PATIENCE = 60.0
"""Seconds after which a user who waits for rules of rules is told of `order`."""

Pending = dict[str, list[Any]]
"""By key of their rule, calls that want its symbols."""


class EndlessRulesError(MissingRuleError):
    """Every rule of a rule needs another one."""


def stage_all(
    table: CallTable, module: ir.Module, order: int | None = None, arguments: Arguments = ()
) -> int | None:
    """Stage every rule that a derivative can reach, to a fixpoint, and name them in the calls.

    Rules of rules are staged too, so the module can be differentiated without Python: as often as
    is returned, or any number of times for None. It is `order` times if that is given, and a
    limited number if rules come to no end. What a rule raises is written down in its place.

    A rule that sees which operands are perturbed is staged for those that derivatives by some of
    the `arguments`, given as the positions of their leaves, request.
    """
    if order is not None:
        _Module(table, module, order, arguments=arguments).complete()
        return order
    staging = _Module(table, module, LAST_ORDER, LAST_OF_MANY, arguments)
    staging.complete()
    return staging.order if staging.newest > staging.order else None


class _Module:
    """A module into which rules are staged.

    Attributes:
      order: the order of the last derivative that is to have all of its rules.
      of_many: the last order to begin where there is much already.
      symbols: by key, the rules that are staged.
      wanted: by key, what derivatives want of these.
      for_types: the rules that are for cotangents of other types, as they were asked for.
      without: the decompositions of the calls that turned out to have no rule.
      warn_at: when to tell of `order`.
    """

    def __init__(
        self,
        table: CallTable,
        module: ir.Module,
        order: int,
        of_many: int | None = None,
        arguments: Arguments = (),
    ) -> None:
        self.table = table
        self.module = module
        self.rules = CallRules(table, module, arguments)
        self.meetings = Meetings(self.rules.linked.functions)
        self.order = order
        self.of_many = order if of_many is None else of_many
        self.symbols: dict[str, Found] = {}
        self.wanted: dict[str, Wanted] = {}
        self.without: set[str] = set()
        self.for_types: set[Any] = set()
        self.progress = Progress()
        self.warn_at = time.monotonic() + PATIENCE

    def complete(self) -> None:
        """Stage all rules, also for cotangents of other types where a rule makes such."""
        with self.progress:
            self._complete()
            while self.table.hands_on and self._stage_for_types():
                self._complete()
        for call in ops.walk_calls(self.module):
            if call.rule_key is not None:
                call.update(**{RULE: None})

    def _stage_for_types(self) -> bool:
        """Name rules for cotangents of other types in calls; return True if there are new ones."""
        calls = [call for call in ops.walk_calls(self.module) if call.rule_key is not None]
        count = len(self.for_types)
        for each in asked_for_types(self.table, self.module, self.order):
            named = None if each in self.for_types else self.rules.for_types(*each)
            self.for_types.add(each)
            if named is None:
                continue
            key, (name, function) = each[0], named
            for known in (self.symbols, self.rules.transposes_of):
                known.get(key, {})[str(name)] = function
            for call in calls:
                if call.rule_key == key and str(name._replace(types=())) in call.attributes:
                    call.update(**{str(name): function})
        return len(self.for_types) > count

    def _complete(self) -> None:
        may_end = self.order > self.of_many
        before = self._ops() if may_end else 0
        while pending := self._unstaged() or self._singled_out():
            if may_end and (
                self._of_rules(pending) > MANY_RULES or self._ops() - before > MANY_OPS
            ):
                self.order = min(self.order, max(self.newest, self.of_many))
            if self._of_rules(pending) > MOST_RULES:
                raise _endless([self.table[key] for key in self.table])
            for key, calls in pending.items():
                if key not in self.symbols:
                    self._stage(key)
                if not rules_in(self.symbols[key]) and self._order(key) <= self.order:
                    self.without.update(call.decomposition for call in calls)
                for call in calls:
                    call.update(**{REFUSED: None, **self.symbols[key]})

    def _stage(self, key: str) -> None:
        """Stage the rules of the equal calls that have this key."""
        rule, wanted = self.table[key], self.wanted[key]
        if wanted.depth and time.monotonic() > self.warn_at:
            self.warn_at = math.inf
            _warn_of_order(rule, self._order(key))
        self.progress.show(
            f"staging rules for derivatives of order {self._order(key)}: "
            f"{self.table.traces} traced, now `{key}`"
        )
        found = self.symbols[key] = self.rules.of(rule, wanted, self.order)
        if self._order(key) > self.order or found.keys() & {"jvp", "fwd"}:
            self.wanted[key] = wanted._replace(mask=rule.own_mask)  # it would be the same for all

    @property
    def newest(self) -> int:
        """The order of derivatives that was reached."""
        return max((self._order(key) for key in self.symbols), default=1)

    def _order(self, key: str) -> int:
        """Return the order of the first derivative that differentiates the calls of this key."""
        return order_of("jvp", self.wanted[key].depth)

    def _of_rules(self, pending: Pending) -> int:
        """Return how many rules of rules there will be, with those that these calls get."""
        keys = self.symbols.keys() | pending.keys()
        return sum(1 < self._order(key) <= self.order for key in keys)

    def _ops(self) -> int:
        return len(operations_where(self.module, lambda op: True))

    def _unstaged(self) -> Pending:
        """Return the calls that derivatives reach and that do not name their rules yet."""
        pending: Pending = defaultdict(list)
        met = [each for each in self.meetings.now() if each.call.rule_key is not None]
        wanted = [each for each in met if _wants_all_rules(each)]
        for each in wanted:
            self._want(each)
        for call, *_ in wanted:
            symbols = self.symbols.get(call.rule_key)
            if symbols is None or symbols.keys() - call.attributes.keys():
                pending[call.rule_key].append(call)
        transposed = [
            each.call
            for each in met
            if not _wants_all_rules(each) and each.order("transpose") <= self.order
        ]
        if not pending and self._transpose(transposed):
            return self._unstaged()
        return pending

    def _want(self, met: Meeting) -> None:
        """Record what derivatives want of a call; if it is more, its rules are staged again."""
        key, below = met.call.rule_key, met.in_rules
        in_rules = below is not None and order_of("jvp", below) <= self.order
        wanted = Wanted(met.mask, met.depth, in_rules)
        known = self.wanted.get(key, wanted)
        self.wanted[key] = known.also(wanted)
        if self.wanted[key][:2] != known[:2]:
            self.symbols.pop(key, None)

    def _transpose(self, calls: list[Any]) -> bool:
        """Name the transposes of calls in them; return True if the module has got new ones.

        The calls are in what other calls with rules compute, which is not differentiated.
        """
        linked = len(self.rules.linked.functions)
        for call in calls:
            call.update(**self.rules.transposes(self.table[call.rule_key]))
        return len(self.rules.linked.functions) > linked

    def _singled_out(self) -> Pending:
        """Add rules for single operands where that for all is not enough; return their calls.

        A rule for all operands may call what has no rule itself, as that of `igamma` does for its
        first operand. A derivative of the derivative by the second one must not need it.
        """
        changed = set()
        for key, found in self.symbols.items() if self.without else ():
            rule = self.table[key]
            if rules_in(found) == {"jvp"} and len(rule.inexact) > 1:
                function = self.rules.linked.functions[found["jvp"]]
                if any(call.decomposition in self.without for call in ops.walk_calls(function)):
                    self.rules.add(found, rule, "jvp", singles(self.wanted[key].mask))
                    changed.add(key)
        return self._unstaged() if changed else {}


def _wants_all_rules(met: Meeting) -> bool:
    """Return True if a call is differentiated, or is a linear call, whose only rule is a transpose.

    Of another call that is only transposed, the transposes are enough.
    """
    return not met.transposed or isinstance(met.call, ops.LinearCall)


def _warn_of_order(rule: KeptCall, order: int) -> None:
    warn_user(
        f"staging rules takes long: `{rule.key}`, called at {rule.where}, is for derivatives of "
        f"order {order}, and there may be ever more; order=1, or 2, stages those "
        "for derivatives up to that order"
    )


def _endless(rules: list[KeptCall]) -> EndlessRulesError:
    """Return the error for rules of rules that come to no end, which names their primitive."""
    primitive, count = Counter(rule.primitive for rule in rules).most_common(1)[0]
    name = primitive.removesuffix(jaxprs.OF_A_LIBRARY)
    return EndlessRulesError(
        f"the rules of rules of `{name}` come to no end: there are {count} now",
        where=next(rule.where for rule in rules if rule.primitive == primitive),
        do="save with order=1, or 2, for derivatives up to that order; or wrap the step in a "
        "function with a rule of its own (jax.custom_jvp or custom_vjp)",
    )
