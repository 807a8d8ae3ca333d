"""Every rule that derivatives of a module can meet, staged into it: these need no Python then."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pullback._edits import clone
from pullback._errors import LeakedValueError, MissingRuleError, PullbackError, headline
from pullback._jax import derivatives, ir, jaxprs
from pullback.dialect import ops
from pullback.dialect.masks import jointly, mask_of, parted, singles
from pullback.dialect.ops import REFUSED, RULE
from pullback.frontend import locations, refusals
from pullback.passes.meetings import Meeting, Meetings, order_of
from pullback.passes.symbols import Symbols
from pullback.passes.vjp import VJP
from pullback_runtime._jax import operations_where

if TYPE_CHECKING:
    from pullback.frontend.rules import Rule, RuleTable

LAST_ORDER = 9
"""Rules of rules are staged up to here. Most end sooner, in a rule that calls its own function;
some never end, because every derivative is a function of its own, as for a Maclaurin series."""

LAST_OF_MANY = 4
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


class EndlessRulesError(MissingRuleError):
    """Every rule of a rule needs another one."""


Found = dict[str, Any]
"""The attributes of a call that name its rules; under `REFUSED`, what the others say."""

Pending = dict[str, list[Any]]
"""By key of their rule, calls that want its symbols."""


def stage_all(table: RuleTable, module: ir.Module, order: int | None = None) -> int | None:
    """Stages every rule that a derivative can meet, to a fixpoint, and writes the symbols down.

    Rules of rules are staged too, so the module can then be differentiated any number of times
    without Python; or as often as is returned: `order` times where that is given, and fewer than
    any where rules come to no end. What a rule says that refuses is written down in its place.
    """
    if order is not None:
        _Module(table, module, order).complete()
        return order
    staging = _Module(table, module, LAST_ORDER, LAST_OF_MANY)
    staging.complete()
    return staging.order if staging.newest > staging.order else None


class _Module:
    """A module that gets its rules.

    Attributes:
      order: that of the last derivative that is to have all of its rules.
      of_many: the last one to begin where there is much already.
      symbols: by key, the rules that are staged.
      perturbed: by key, the mask of the operands that derivatives perturb, for which they are.
      depth: by key, that of the calls, at least.
      transposes: by key, those among the rules that are transposes.
      inside: keys of calls that rules make.
      asked: by key, the masks that the gradient asks for; empty where there is no gradient.
      accepted: by primitive, the operands that the last call of it has a rule by.
      missing: keys, and names of rules of these that there are not.
      without: the decompositions of the calls that turned out to have no rule.
    """

    def __init__(
        self, table: RuleTable, module: ir.Module, order: int, of_many: int | None = None
    ) -> None:
        self.table = table
        self.module = module
        self.linked = Symbols(module)
        self.meetings = Meetings(self.linked.functions)
        self.order = order
        self.of_many = order if of_many is None else of_many
        self.symbols: dict[str, Found] = {}
        self.perturbed: dict[str, str] = {}
        self.depth: dict[str, int] = {}
        self.transposes: dict[str, Found] = {}
        self.inside: set[str] = set()
        self.asked: dict[str, str] | None = None
        self.accepted: dict[tuple[str, str, int], str] = {}
        self.missing: set[tuple[str, str]] = set()
        self.without: set[str] = set()

    def complete(self) -> None:
        warn_at: float | None = time.monotonic() + PATIENCE
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
                rule = self.table[key]
                order = self._order("jvp", key)
                if key not in self.symbols:
                    if self.depth[key] and warn_at is not None and time.monotonic() > warn_at:
                        warn_at = None
                        _warn_of_order(rule, order)
                    with _naming(rule):
                        self.symbols[key] = self._symbols_of(rule)
                    if order > self.order or self.symbols[key].keys() & {"jvp", "fwd"}:
                        self.perturbed[key] = rule.own_mask  # it would be the same for all
                if not _rules_in(self.symbols[key]) and order <= self.order:
                    self.without.update(call.decomposition for call in calls)
                for call in calls:
                    call.update(**{REFUSED: None, **self.symbols[key]})
        for call in ops.walk_calls(self.module):
            if call.rule_key is not None:
                call.update(**{RULE: None})

    @property
    def newest(self) -> int:
        """The order of derivatives that was reached."""
        return max((self._order("jvp", key) for key in self.symbols), default=1)

    def _order(self, kind: str, key: str) -> int:
        return order_of(kind, self.depth[key])

    def _of_rules(self, pending: Pending) -> int:
        """How many rules of rules there will be, with those that these calls get."""
        keys = self.symbols.keys() | pending.keys()
        return sum(1 < self._order("jvp", key) <= self.order for key in keys)

    def _ops(self) -> int:
        return len(operations_where(self.module, lambda op: True))

    def _unstaged(self) -> Pending:
        """Calls that derivatives meet, and that do not name their rules yet."""
        pending: Pending = defaultdict(list)
        met = [each for each in self.meetings.now() if each.call.rule_key is not None]
        wanted = [each for each in met if _is_differentiated(each)]
        for met_here in wanted:
            call, mask, depth, _ = met_here
            key = call.rule_key
            known, least = self.perturbed.get(key, mask), self.depth.get(key, depth)
            self.perturbed[key], self.depth[key] = jointly([mask, known]), min(depth, least)
            if depth and met_here.order("jvp") <= self.order:
                self.inside.add(key)
            if (self.perturbed[key], self.depth[key]) != (known, least):
                self.symbols.pop(key, None)
        for call, *_ in wanted:
            symbols = self.symbols.get(call.rule_key)
            if symbols is None or symbols.keys() - call.attributes.keys():
                pending[call.rule_key].append(call)
        transposed = [
            each.call for each in met if each.transposed and each.order("transpose") <= self.order
        ]
        if not pending and self._transpose(transposed):
            return self._unstaged()
        return pending

    def _transpose(self, calls: list[Any]) -> bool:
        """Names the transposes of calls; whether the module has got any by that.

        The calls are in what others compute that have rules: it is not differentiated.
        """
        linked = len(self.linked.functions)
        for call in calls:
            rule = self.table[call.rule_key]
            with _naming(rule):
                call.update(**self._transposes_of(rule))
        return len(self.linked.functions) > linked

    def _singled_out(self) -> Pending:
        """Calls that have new rules now: one for each operand, beside that for all at once.

        A rule for all operands may call what has no rule itself, as that of `igamma` does for its
        first operand. Who differentiates by the second one again must not need it.
        """
        changed = set()
        for key, found in self.symbols.items() if self.without else ():
            rule = self.table[key]
            if _rules_in(found) == {"jvp"} and len(rule.inexact) > 1:
                function = self.linked.functions[found["jvp"]]
                if any(call.decomposition in self.without for call in ops.walk_calls(function)):
                    self._try(found, rule, "jvp", singles(self.perturbed[key]))
                    changed.add(key)
        return self._unstaged() if changed else {}

    def _symbols_of(self, rule: Rule) -> Found:
        """Every rule of one call that there is, and that derivatives up to the last order want."""
        found: Found = {}
        if self._order("transpose", rule.key) > self.order:
            return found
        differentiated = self._order("jvp", rule.key) <= self.order
        if rule.op == "pullback.custom_vjp_call":
            if differentiated:
                self._pairs(found, rule)
                self._try(found, rule, "jvp", [rule.own_mask] * rule.goes_forward)
            return found
        if rule.op == "pullback.linear_call":
            with _noting(found, "transpose"):
                found["transpose"] = self._stage(rule, "transpose", rule.linear_mask)
            return found
        if differentiated:
            self._pushforwards(found, rule)
        transposes = self._transposes_of(rule)
        refused = found.get(REFUSED, {}) | transposes.get(REFUSED, {})
        return found | transposes | ({REFUSED: refused} if refused else {})

    def _pushforwards(self, found: Found, rule: Rule) -> None:
        """Adds the jvp for all operands; if there is none, for those perturbed that have one.

        One that sees which are, and refuses all, is for those that are perturbed together.
        """
        self._try(found, rule, "jvp", [rule.own_mask])
        if _rules_in(found) or (REFUSED in found and not rule.knows_operands_apart):
            return
        if rule.sees_zeros:
            if REFUSED not in found:
                return
            asked = self._asked_of(rule)
            self._try(found, rule, "jvp", [mask for mask in asked if mask != rule.own_mask])
            if not asked or _name("jvp", asked[-1]) in found:
                found.pop(REFUSED, None)  # nobody asks for the others
                return
        elif "1" in (joint := self._accepted(found, rule, "jvp")):
            self._try(found, rule, "jvp", [joint])
            if _name("jvp", joint) in found:
                return
        alone = singles(self.perturbed[rule.key])
        self._try(found, rule, "jvp", [mask for mask in alone if _name("jvp", mask) not in found])

    def _transposes_of(self, rule: Rule) -> Found:
        """The transposes of a call: for all operands, and for each that it is linear in.

        Beside residuals there may be many operands that it is linear in: these together, too.
        JAX knows the right-hand sides of a linear solve together only.
        """
        if rule.key in self.transposes:
            return self.transposes[rule.key]
        found = self.transposes[rule.key] = Found()
        if not derivatives.has_transpose(rule.call.eqns[0]):
            return found
        sides = mask_of(i in rule.right_sides for i in rule.inexact)
        masks = dict.fromkeys([rule.own_mask, *rule.single_masks, *[sides] * ("1" in sides)])
        self._try(found, rule, "transpose", masks)
        accepted = [mask for mask in masks if f"transpose.{mask}" in found]
        if rule.own_mask not in accepted and len(accepted) > 1:
            joint = jointly(accepted)
            self._try(found, rule, "transpose", [joint] * (joint not in masks))
        return found

    def _pairs(self, found: Found, rule: Rule) -> None:
        """Adds fwd and bwd for all operands; where they refuse, for those that are perturbed.

        Where they refuse these, for those among them that they accept.
        """
        if self._pair(found, rule, rule.own_mask) or not rule.knows_operands_apart:
            return
        asked = self._asked_of(rule)
        for mask in asked:
            if mask != rule.own_mask:
                self._pair(found, rule, mask)
        if not asked or _name("fwd", asked[-1]) in found:
            found.pop(REFUSED, None)  # nobody asks for the others
        if not asked or _rules_in(found):
            return
        if "1" in (joint := self._accepted(found, rule, "vjp")):
            self._pair(found, rule, joint)

    def _pair(self, found: Found, rule: Rule, mask: str) -> bool:
        """Adds fwd and bwd for a mask; whether they accept it."""
        with _noting(found, _name("vjp", mask)):
            names = _name("fwd", mask), _name("bwd", mask)
            found |= zip(names, self._stage(rule, "vjp", mask), strict=True)
            return True
        return False

    def _accepted(self, found: Found, rule: Rule, kind: str) -> str:
        """The mask of the perturbed operands that there is a rule by.

        Found by halving, after those that another call of the primitive has a rule by: there may be
        many operands, and to trace a rule takes long.
        """

        def part(mask: str) -> str:
            if "1" not in mask or self._accepts(found, rule, kind, mask):
                return mask
            alone = singles(mask)
            if len(alone) == 1:
                return "0" * len(mask)
            middle = len(alone) // 2
            return jointly([part(jointly(alone[:middle])), part(jointly(alone[middle:]))])

        perturbed, alike = self.perturbed[rule.key], (kind, rule.primitive, len(rule.inexact))
        first, rest = parted(perturbed, self.accepted.get(alike, perturbed))
        self.accepted[alike] = jointly([part(first), part(rest)])
        return self.accepted[alike]

    def _accepts(self, found: Found, rule: Rule, kind: str, mask: str) -> bool:
        """Whether there is a rule for a mask; notes what it says that refuses one operand."""
        name = _name(kind, mask)
        if (rule.key, name) in self.missing:
            return False
        try:
            with _noting(found if mask.count("1") == 1 else Found(), name):
                self.table.traced_rule(rule, kind, mask)
                return True
        except LeakedValueError:
            raise
        except MissingRuleError:
            self.missing.add((rule.key, name))
        return False

    def _asked_of(self, rule: Rule) -> list[str]:
        """Masks for which derivatives ask for a rule that refuses all operands; the widest is last.

        They are what the gradient of the program asks for, and what may be perturbed in rules.
        """
        if self.asked is None:
            self.asked = _asked_by_gradient(self.table, self.module)
        by_gradient = [self.asked[key] for key in (rule.key,) if key in self.asked]
        if self.asked and rule.key not in self.inside:
            return by_gradient
        anywhere = jointly([*by_gradient, self.perturbed[rule.key]])
        return list(dict.fromkeys([*by_gradient, anywhere]))

    def _try(self, found: Found, rule: Rule, kind: str, masks: Iterable[str]) -> None:
        """Adds to `found` the rules of this kind that there are."""
        for mask in masks:
            name = _name(kind, mask)
            if (rule.key, name) in self.missing:
                continue
            try:
                with _noting(found, name):
                    found[name] = self._stage(rule, kind, mask)
            except LeakedValueError:
                raise
            except MissingRuleError:
                self.missing.add((rule.key, name))

    def _stage(self, rule: Rule, kind: str, mask: str) -> Any:
        return self.table.stage(self.linked, rule.key, kind, mask)


class _Asked:
    """A rule table that notes for which operands it gives rules."""

    def __init__(self, table: RuleTable) -> None:
        self._table = table
        self.masks: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def stage(self, symbols: Symbols, key: str, kind: str, mask: str) -> Any:
        found = self._table.stage(symbols, key, kind, mask)
        self._note(key, kind, mask)
        return found

    def sources(self, key: str, kind: str, mask: str) -> Any:
        found = self._table.sources(key, kind, mask)
        self._note(key, kind, mask)
        return found

    def _note(self, key: str, kind: str, mask: str) -> None:
        if kind != "transpose":
            given = mask.partition("|")[0]
            self.masks[key] = jointly([given, self.masks.get(key, given)])


def _asked_by_gradient(table: RuleTable, module: ir.Module) -> dict[str, str]:
    """By key, the operands by which the gradient of a module by all arguments asks for rules."""
    asked = _Asked(table)
    try:
        VJP().run(clone(module), asked)
    except Exception:  # whoever asks for it will be told
        return {}
    return asked.masks


def _is_differentiated(met: Meeting) -> bool:
    """Whether a call wants all of its rules: a linear call has no other than its transpose."""
    return not met.transposed or isinstance(met.call, ops.LinearCall)


def _name(kind: str, mask: str) -> str:
    """What a call names the rule that is for a mask."""
    return f"{kind}.{mask}" if kind == "transpose" or "0" in mask else kind


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


def _warn_of_order(rule: Rule, order: int) -> None:
    warnings.warn(
        f"staging rules takes long: `{rule.key}`, called at {rule.where}, is for derivatives of "
        f"order {order}, and there may be ever more; order=1, or 2, stages those "
        "for derivatives up to that order",
        stacklevel=2,
    )


def _endless(rules: list[Rule]) -> EndlessRulesError:
    """There seem to be more and more rules of one primitive; names it."""
    primitive, count = Counter(rule.primitive for rule in rules).most_common(1)[0]
    name = primitive.removesuffix(jaxprs.OF_A_LIBRARY)
    return EndlessRulesError(
        f"the rules of rules of `{name}` come to no end: there are {count} now",
        where=next(rule.where for rule in rules if rule.primitive == primitive),
        do="save with order=1, or 2, for derivatives up to that order; or wrap the step in a "
        "function with a rule of its own (jax.custom_jvp or custom_vjp)",
    )
