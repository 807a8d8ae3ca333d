"""The rules that a call gets before its program leaves Python: those that derivatives want."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pullback._edits import clone
from pullback._errors import LeakedValueError, MissingRuleError
from pullback._jax import derivatives, ir
from pullback.dialect.masks import Asked, jointly, mask_of, parted, singles
from pullback.dialect.ops import REFUSED, RuleName
from pullback.frontend import refusals
from pullback.passes.meetings import order_of
from pullback.passes.specialized import kinds_in
from pullback.passes.symbols import Symbols, functions
from pullback.passes.vjp import VJP

if TYPE_CHECKING:
    from pullback.frontend.rule import Rule
    from pullback.frontend.rules import RuleTable

Found = dict[str, Any]
"""The attributes of a call that name its rules; under `REFUSED`, what the others say."""


class Wanted(NamedTuple):
    """What derivatives want of the rules of equal calls.

    Attributes:
      mask: the operands that they perturb.
      depth: that of the calls, at least: see `Meeting`.
      in_rules: whether rules make such calls.
    """

    mask: str
    depth: int
    in_rules: bool

    def also(self, other: Wanted) -> Wanted:
        """What both want."""
        mask, depth = jointly([self.mask, other.mask]), min(self.depth, other.depth)
        return Wanted(mask, depth, self.in_rules or other.in_rules)


class CallRules:
    """The rules of the calls of a module, staged into it.

    Attributes:
      linked: the functions of the module.
      transposes_of: by key, the transposes that are staged.
    """

    def __init__(self, table: RuleTable, module: ir.Module) -> None:
        self.table = table
        self.module = module
        self.linked = Symbols(module)
        self.transposes_of: dict[str, Found] = {}
        self._asked: dict[str, str] | None = None  # by the gradient; empty where there is none
        self._known: dict[tuple[str, str, int], str] = {}  # what the last call of a kind accepts
        self._missing: set[tuple[str, str]] = set()  # keys, and names of rules that there are not

    def of(self, rule: Rule, wanted: Wanted, order: int) -> Found:
        """Every rule of equal calls that there is, and that derivatives up to an order want."""
        found: Found = {}
        if order_of("transpose", wanted.depth) > order:
            return found
        differentiated = order_of("jvp", wanted.depth) <= order
        if rule.op == "pullback.custom_vjp_call":
            if differentiated:
                self._pairs(found, rule, wanted)
                self.add(found, rule, "jvp", [rule.own_mask] * rule.goes_forward)
            return found
        if rule.op == "pullback.linear_call":
            with _noting(found, "transpose"):
                found["transpose"] = self._stage(rule, "transpose", rule.linear_mask)
            return found
        if differentiated:
            self._pushforwards(found, rule, wanted)
        transposes = self.transposes(rule)
        refused = found.get(REFUSED, {}) | transposes.get(REFUSED, {})
        return found | transposes | ({REFUSED: refused} if refused else {})

    def _pushforwards(self, found: Found, rule: Rule, wanted: Wanted) -> None:
        """Adds the jvp for all operands; if there is none, for those perturbed that have one.

        One that sees which are, and refuses all, is for those that are perturbed together.
        """
        self.add(found, rule, "jvp", [rule.own_mask])
        if rules_in(found) or (REFUSED in found and not rule.knows_operands_apart):
            return
        if rule.sees_zeros:
            if REFUSED not in found:
                return
            asked = self._asked_of(rule, wanted)
            self.add(found, rule, "jvp", [mask for mask in asked if mask != rule.own_mask])
            if not asked or _name("jvp", asked[-1]) in found:
                found.pop(REFUSED, None)  # nobody asks for the others
                return
        elif "1" in (joint := self._accepted(found, rule, "jvp", wanted.mask)):
            self.add(found, rule, "jvp", [joint])
            if _name("jvp", joint) in found:
                return
        alone = singles(wanted.mask)
        self.add(found, rule, "jvp", [mask for mask in alone if _name("jvp", mask) not in found])

    def transposes(self, rule: Rule) -> Found:
        """The transposes of a call: for all operands, and for each that it is linear in.

        Beside residuals there may be many operands that it is linear in: these together, too.
        JAX knows the right-hand sides of a linear solve together only.
        """
        if rule.key in self.transposes_of:
            return self.transposes_of[rule.key]
        found = self.transposes_of[rule.key] = Found()
        if not derivatives.has_transpose(rule.call.eqns[0]):
            return found
        sides = mask_of(i in rule.right_sides for i in rule.inexact)
        masks = dict.fromkeys([rule.own_mask, *rule.single_masks, *[sides] * ("1" in sides)])
        self.add(found, rule, "transpose", masks)
        accepted = [mask for mask in masks if f"transpose.{mask}" in found]
        if rule.own_mask not in accepted and len(accepted) > 1:
            joint = jointly(accepted)
            self.add(found, rule, "transpose", [joint] * (joint not in masks))
        return found

    def _pairs(self, found: Found, rule: Rule, wanted: Wanted) -> None:
        """Adds fwd and bwd for all operands; where they refuse, for those that are perturbed.

        Where they refuse these, for those among them that they accept.
        """
        if self._pair(found, rule, rule.own_mask) or not rule.knows_operands_apart:
            return
        asked = self._asked_of(rule, wanted)
        for mask in asked:
            if mask != rule.own_mask:
                self._pair(found, rule, mask)
        if not asked or _name("fwd", asked[-1]) in found:
            found.pop(REFUSED, None)  # nobody asks for the others
        if not asked or rules_in(found):
            return
        if "1" in (joint := self._accepted(found, rule, "vjp", wanted.mask)):
            self._pair(found, rule, joint)

    def _pair(self, found: Found, rule: Rule, mask: str) -> bool:
        """Adds fwd and bwd for a mask; whether they accept it."""
        with _noting(found, _name("vjp", mask)):
            names = _name("fwd", mask), _name("bwd", mask)
            found |= zip(names, self._stage(rule, "vjp", mask), strict=True)
            return True
        return False

    def _accepted(self, found: Found, rule: Rule, kind: str, perturbed: str) -> str:
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

        alike = kind, rule.primitive, len(rule.inexact)
        first, rest = parted(perturbed, self._known.get(alike, perturbed))
        self._known[alike] = jointly([part(first), part(rest)])
        return self._known[alike]

    def _accepts(self, found: Found, rule: Rule, kind: str, mask: str) -> bool:
        """Whether there is a rule for a mask; notes what it says that refuses one operand."""
        notes = found if mask.count("1") == 1 else Found()
        return self._try(notes, rule, kind, mask, self.table.traced_rule) is not None

    def _asked_of(self, rule: Rule, wanted: Wanted) -> list[str]:
        """Masks for which derivatives ask for a rule that refuses all operands; the widest is last.

        They are what the gradient of the program asks for, and what may be perturbed in rules.
        """
        if self._asked is None:
            self._asked = _asked_by_gradient(self.table, self.module)
        by_gradient = [self._asked[key] for key in (rule.key,) if key in self._asked]
        if self._asked and not wanted.in_rules:
            return by_gradient
        anywhere = jointly([*by_gradient, wanted.mask])
        return list(dict.fromkeys([*by_gradient, anywhere]))

    def add(self, found: Found, rule: Rule, kind: str, masks: Iterable[str]) -> None:
        """Adds to `found` the rules of this kind that there are."""
        for mask in masks:
            if (staged := self._try(found, rule, kind, mask, self._stage)) is not None:
                found[_name(kind, mask)] = staged

    def _try(
        self, found: Found, rule: Rule, kind: str, mask: str, get: Callable[[Rule, str, str], Any]
    ) -> Any:
        """What `get` gives of a rule; None, and a note of what it says, if it refuses or is not."""
        name = _name(kind, mask)
        if (rule.key, name) in self._missing:
            return None
        try:
            with _noting(found, name):
                return get(rule, kind, mask)
        except LeakedValueError:
            raise
        except MissingRuleError:
            self._missing.add((rule.key, name))
        return None

    def _stage(self, rule: Rule, kind: str, mask: str) -> Any:
        return self.table.stage(self.linked, rule.key, kind, mask)

    def for_types(self, key: str, kind: str, asked: Asked) -> tuple[RuleName, str] | None:
        """Stage a rule for cotangents of other element types; what a call names it, and its name.

        None if it does not fit the forward function that is there.
        """
        rule, mask = self.table[key], asked.operands
        staged = self.table.stage(self.linked, key, kind, str(asked))
        if kind == "vjp":
            own = self.linked.functions[self._stage(rule, "vjp", mask)[1]]
            other, count = self.linked.functions[staged[1]], len(asked.types)
            if _inputs(own)[:-count] != _inputs(other)[:-count]:
                return None
            return RuleName("bwd", mask if "0" in mask else "", asked.types), staged[1]
        mask = "" if rule.op == "pullback.linear_call" else mask
        return RuleName("transpose", mask, asked.types), str(staged)


def _inputs(function: Any) -> list[Any]:
    return list(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs)


class _Asked:
    """A rule table that notes for which operands it gives rules, and for which cotangents."""

    def __init__(self, table: RuleTable) -> None:
        self._table = table
        self.masks: dict[str, str] = {}
        self.typed: dict[tuple[str, str, Asked], None] = {}

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
        asked = Asked.parse(mask)
        if asked.types:
            self.typed[key, kind, asked._replace(results="")] = None
        if kind != "transpose":
            given = asked.operands
            self.masks[key] = jointly([given, self.masks.get(key, given)])


def _asked_by_gradient(table: RuleTable, module: ir.Module) -> dict[str, str]:
    """By key, the operands by which the gradient of a module by all arguments asks for rules."""
    asked = _Asked(table)
    try:
        VJP().run(clone(module), asked)
    except Exception:  # whoever asks for it will be told
        return {}
    return asked.masks


def asked_for_types(table: RuleTable, module: ir.Module, order: int) -> list[Any]:
    """The keys, kinds and masks of rules for cotangents of other types than their results have.

    They are those that derivatives up to the second order ask for, by each result and by all.
    """
    _, gives = kinds_in(functions(module)["main"])
    outs = [i for i, kind in enumerate(gives) if kind.inexact]
    asked = _Asked(table)
    for chosen in (None, *((i,) for i in outs if len(outs) > 1)):
        copy = clone(module)
        with contextlib.suppress(Exception):  # whoever asks for it will be told
            for _ in range(min(order, 2)):
                VJP(outs=chosen).run(copy, asked)
                chosen = None
    return list(asked.typed)


def _name(kind: str, mask: str) -> str:
    """What a call names the rule that is for a mask."""
    return f"{kind}.{mask}" if kind == "transpose" or "0" in mask else kind


def rules_in(found: Found) -> set[str]:
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
