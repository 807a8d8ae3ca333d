"""Every rule that a module can need, staged into it: then it is differentiated without Python."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pullback._errors import LeakedValueError, MissingRuleError, PullbackError, headline
from pullback._jax import derivatives, ir, jaxprs
from pullback.dialect import ops
from pullback.dialect.masks import mask_of
from pullback.dialect.ops import REFUSED, RULE
from pullback.frontend import locations, refusals
from pullback.passes.symbols import Symbols
from pullback_runtime._jax import operations_where

if TYPE_CHECKING:
    from pullback.frontend.rules import Rule, RuleTable

LAST_GENERATION = 8
"""Rules of rules are staged up to here. Most end sooner, in a rule that calls its own function;
some never end, because every derivative is a function of its own, as for a Maclaurin series."""

LAST_OF_MANY = 3
"""The same where there is much already: rules of `odeint` solve a larger system each time."""

MANY_OPS, MANY_RULES = 10_000, 100
"""More ops of rules, or rules of rules, than programs have whose rules end soon."""

MOST_RULES = 1500
"""More rules of rules than any program needs whose equal rules are found to be equal."""

PATIENCE = 60.0
"""Seconds after which who waits for rules of rules is told of `order`."""

_ALLOW_IT = (
    "if it is not needed, save with allow_refusals=True (--allow-refusals in a shell): the file "
    "raises this where it is asked for"
)

Found = dict[str, Any]
"""The attributes of a call that name its rules; under `REFUSED`, what the others say."""


def stage_all(table: RuleTable, module: ir.Module, order: int | None = None) -> int | None:
    """Stages every rule that `module` can need, to a fixpoint, and writes the symbols down.

    Rules of rules are staged too, so the module can then be differentiated any number of times
    without Python; or as often as is returned: `order` times where that is given, and fewer than
    any where rules come to no end. What a rule says that refuses is written down in its place.
    """
    if order is not None:
        _Module(table, module, order - 1).complete()
        return order
    staging = _Module(table, module, LAST_GENERATION, LAST_OF_MANY)
    staging.complete()
    return staging.last + 1 if staging.newest > staging.last else None


class _Module:
    """A module that gets its rules.

    Attributes:
      last: the generation of rules that is the last one.
      last_of_many: the last one to begin where there is much already.
      symbols: by key, the rules that are staged.
      without: the decompositions of the calls that turned out to have no rule.
    """

    def __init__(
        self, table: RuleTable, module: ir.Module, last: int, last_of_many: int | None = None
    ) -> None:
        self.table = table
        self.module = module
        self.linked = Symbols(module)
        self.last = last
        self.last_of_many = last if last_of_many is None else last_of_many
        self.symbols: dict[str, Found] = {}
        self.without: set[str] = set()

    def complete(self) -> None:
        warn_at: float | None = time.monotonic() + PATIENCE
        may_end = self.last > self.last_of_many
        before = self._ops() if may_end else 0
        while pending := self._unstaged() or self._singled_out():
            if may_end and (
                self._of_rules(pending) > MANY_RULES or self._ops() - before > MANY_OPS
            ):
                self.last = min(self.last, max(self.newest, self.last_of_many))
            if self._of_rules(pending) > MOST_RULES:
                raise _endless([self.table[key] for key in self.table])
            for call, key in pending:
                rule = self.table[key]
                if key not in self.symbols:
                    if rule.generation and warn_at is not None and time.monotonic() > warn_at:
                        warn_at = None
                        _warn_of_order(rule)
                    with _naming(rule):
                        self.symbols[key] = self._symbols_of(rule)
                if not _rules_in(self.symbols[key]) and rule.generation <= self.last:
                    self.without.add(call.decomposition)
                call.update(**{RULE: None, **self.symbols[key]})

    @property
    def newest(self) -> int:
        """The generation that was reached."""
        return max((self.table[key].generation for key in self.symbols), default=0)

    def _of_rules(self, pending: list[tuple[Any, str]]) -> int:
        """How many rules of rules there will be, with those that these calls get."""
        keys = self.symbols.keys() | {key for _, key in pending}
        return sum(0 < self.table[key].generation <= self.last for key in keys)

    def _ops(self) -> int:
        return len(operations_where(self.module, lambda op: True))

    def _unstaged(self) -> list[tuple[Any, str]]:
        calls = ops.walk_calls(self.module)
        return [(call, key) for call in calls if (key := call.rule_key) is not None]

    def _singled_out(self) -> list[tuple[Any, str]]:
        """Calls that have new rules now: one for each operand, beside that for all at once.

        A rule for all operands may call what has no rule itself, as that of `igamma` does for its
        first operand. Who differentiates by the second one again must not need it.
        """
        keys = {}
        for key, found in self.symbols.items() if self.without else ():
            rule = self.table[key]
            if _rules_in(found) == {"jvp"} and len(rule.inexact) > 1:
                function = self.linked.functions[found["jvp"]]
                if any(call.decomposition in self.without for call in ops.walk_calls(function)):
                    self._try(found, rule, "jvp", rule.single_masks)
                    keys[found["jvp"]] = key
        calls = ops.walk_calls(self.module) if keys else ()
        return [(c, keys[jvp]) for c in calls if (jvp := c.symbols.get("jvp")) in keys]

    def _symbols_of(self, rule: Rule) -> Found:
        """Every rule of one call that there is.

        Reverse mode by a rule of the last generation transposes the calls in it, and needs no more.
        """
        found: Found = {}
        if rule.generation > self.last + 1:
            return found
        if rule.op == "pullback.custom_vjp_call":
            if rule.generation <= self.last:
                self._pairs(found, rule)
                self._try(found, rule, "jvp", [rule.own_mask] * rule.goes_forward)
            return found
        if rule.op == "pullback.linear_call":
            with _noting(found, "transpose"):
                found["transpose"] = self._stage(rule, "transpose", rule.linear_mask)
            return found
        if rule.generation <= self.last and ("1" in rule.own_mask or not rule.inexact):
            self._try(found, rule, "jvp", [rule.own_mask])
            if not _rules_in(found) and (REFUSED not in found or rule.knows_operands_apart):
                self._try(found, rule, "jvp", rule.single_masks)
        if derivatives.has_transpose(rule.call.eqns[0]):
            self._transposes(found, rule)
        return found

    def _transposes(self, found: Found, rule: Rule) -> None:
        """Adds the transposes of a call: for all operands, and for each that it is linear in.

        Beside residuals there may be many operands that it is linear in: these together, too.
        JAX knows the right-hand sides of a linear solve together only.
        """
        sides = mask_of(i in rule.right_sides for i in rule.inexact)
        masks = dict.fromkeys([rule.own_mask, *rule.single_masks, *[sides] * ("1" in sides)])
        self._try(found, rule, "transpose", masks)
        accepted = [mask for mask in masks if f"transpose.{mask}" in found]
        if rule.own_mask not in accepted and len(accepted) > 1:
            joint = _jointly(accepted)
            self._try(found, rule, "transpose", [joint] * (joint not in masks))

    def _pairs(self, found: Found, rule: Rule) -> None:
        """Adds fwd and bwd for all operands; where they refuse, for those that they accept."""
        own = rule.own_mask
        if rule.inexact and "1" not in own:
            return
        with _noting(found, "vjp"):
            found |= zip(("fwd", "bwd"), self._stage(rule, "vjp", own), strict=True)
            return
        accepted = []
        for mask in rule.single_masks if rule.knows_operands_apart else ():
            with _noting(found, f"vjp.{mask}"):
                self.table.traced_rule(rule, "vjp", mask)
                accepted.append(mask)
        if accepted:
            joint = _jointly(accepted)
            with _noting(found, f"vjp.{joint}"):
                names = f"fwd.{joint}", f"bwd.{joint}"
                found |= zip(names, self._stage(rule, "vjp", joint), strict=True)

    def _try(self, found: Found, rule: Rule, kind: str, masks: Iterable[str]) -> None:
        """Adds to `found` the rules of this kind that there are."""
        for mask in masks:
            name = f"{kind}.{mask}" if kind == "transpose" or "0" in mask else kind
            try:
                with _noting(found, name):
                    found[name] = self._stage(rule, kind, mask)
            except LeakedValueError:
                raise
            except MissingRuleError:
                continue

    def _stage(self, rule: Rule, kind: str, mask: str) -> Any:
        return self.table.stage(self.linked, rule.key, kind, mask)


def _jointly(masks: Iterable[str]) -> str:
    """The mask of what any of these has."""
    return "".join(map(max, zip(*masks, strict=True)))


def _rules_in(found: Found) -> set[str]:
    return found.keys() - {REFUSED}


@contextlib.contextmanager
def _noting(found: Found, name: str) -> Iterator[None]:
    """Writes down what the rule of this name says where it refuses."""
    try:
        yield
    except Exception as error:
        said = refusals.to_write_down(error)
        if said is None:
            raise
        found.setdefault(REFUSED, {})[name] = said


@contextlib.contextmanager
def _naming(rule: Rule) -> Iterator[None]:
    """Raises what goes wrong in a user's rule as an error that names the rule and the line."""
    try:
        yield
    except LeakedValueError as error:
        error.do = f"{error.do}; or, {_ALLOW_IT}"
        raise
    except PullbackError:
        raise
    except Exception as error:
        line = locations.of_error(error)
        raise MissingRuleError(
            f"the rule of `{rule.key}` cannot be written into the program: {headline(error)}",
            where=f"{line}, in the rule of the call at {rule.where}" if line else rule.places,
            do="let the rule use functions that JAX can trace, on its arguments only; or, "
            + _ALLOW_IT,
        ) from error


def _warn_of_order(rule: Rule) -> None:
    warnings.warn(
        f"staging rules takes long: `{rule.key}`, called at {rule.where}, is for derivatives of "
        f"order {rule.generation + 1}, and there may be ever more; order=1, or 2, stages those "
        "for derivatives up to that order",
        stacklevel=2,
    )


def _endless(rules: list[Rule]) -> MissingRuleError:
    """There seem to be more and more rules of one primitive; names it."""
    primitive, count = Counter(rule.primitive for rule in rules).most_common(1)[0]
    name = primitive.removesuffix(jaxprs.OF_A_LIBRARY)
    return MissingRuleError(
        f"the rules of rules of `{name}` come to no end: there are {count} now",
        where=next(rule.where for rule in rules if rule.primitive == primitive),
        do="save with order=1, or 2, for derivatives up to that order; or wrap the step in a "
        "function with a rule of its own (jax.custom_jvp or custom_vjp)",
    )
