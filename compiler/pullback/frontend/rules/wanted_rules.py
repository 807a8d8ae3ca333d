"""The rules that a call gets before its program leaves Python: those that derivatives want."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pullback._jax import derivatives, ir
from pullback.autodiff.reachable_calls import order_of
from pullback.autodiff.specialized import kinds_in
from pullback.errors import LeakedValueError, MissingRuleError, PullbackError, RuleResultError
from pullback.ir import locations
from pullback.ir.masks import Asked, jointly, mask_of, parted, singles
from pullback.ir.modules import clone
from pullback.ir.ops import REFUSED, SEES_ZEROS, RuleName
from pullback.ir.symbols import Symbols, functions
from pullback.passes.base import Pass
from pullback.passes.jvp import JVP
from pullback.passes.vjp import VJP

if TYPE_CHECKING:
    from pullback.frontend.rules.call_table import CallTable
    from pullback.frontend.rules.kept_call import KeptCall

_FEW = 3
"""Arguments of which all sets are tried."""

Arguments = Sequence[Sequence[int]]
"""For each argument of a program, the positions of its leaves."""

ByKey = dict[str, dict[tuple[str, Asked], None]]
"""By key of a rule, what derivatives ask of it: the kind, and the operands and results."""

Found = dict[str, Any]
"""The attributes of a call that name its rules; under `REFUSED`, the errors of the others."""


class Wanted(NamedTuple):
    """Requirements of derivatives on the rules of equal calls.

    Attributes:
      mask: the operands that they perturb.
      depth: that of the calls, at least: see `Meeting`.
      in_rules: whether rules make such calls.
    """

    mask: str
    depth: int
    in_rules: bool

    def also(self, other: Wanted) -> Wanted:
        """Return what both want."""
        mask, depth = jointly([self.mask, other.mask]), min(self.depth, other.depth)
        return Wanted(mask, depth, self.in_rules or other.in_rules)


class CallRules:
    """The rules of the calls of a module, staged into it.

    Attributes:
      arguments: the positions of the leaves of each argument, which derivatives may be by.
      linked: the functions of the module.
      transposes_of: by key, the transposes that are staged.
    """

    def __init__(self, table: CallTable, module: ir.Module, arguments: Arguments = ()) -> None:
        self.table = table
        self.module = module
        self.arguments = arguments
        self.linked = Symbols(module)
        self.transposes_of: dict[str, Found] = {}
        self._asked: ByKey | None = None  # by derivatives; empty where there are none
        self._known: dict[tuple[str, str, int], str] = {}  # what the last call of a kind accepts
        self._missing: set[tuple[str, str]] = set()  # keys, and names of rules that there are not

    def of(self, rule: KeptCall, wanted: Wanted, order: int) -> Found:
        """Stage the rules that equal calls have and that derivatives up to an order want."""
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
                found["transpose"] = self._stage(rule, "transpose", Asked(rule.linear_mask))
            return found
        if differentiated:
            self._pushforwards(found, rule, wanted)
        transposes = self.transposes(rule)
        refused = found.get(REFUSED, {}) | transposes.get(REFUSED, {})
        return found | transposes | ({REFUSED: refused} if refused else {})

    def _pushforwards(self, found: Found, rule: KeptCall, wanted: Wanted) -> None:
        """Add the jvp for all operands; if there is none, for those perturbed that have one.

        A rule that sees which operands are perturbed, and refuses all, is staged for those that
        derivatives perturb together.
        """
        self.add(found, rule, "jvp", [rule.own_mask])
        if rules_in(found):
            self._add_for_other_sets(found, rule, "jvp")
            return
        if REFUSED in found and not rule.knows_operands_apart:
            return
        if rule.sees_zeros:
            if REFUSED not in found:
                return
            asked = [each.operands for each in self._asked_of(rule, wanted, "jvp")]
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

    def transposes(self, rule: KeptCall) -> Found:
        """Return the transposes of a call: for all operands, and for each that it is linear in.

        If it is linear in several operands beside residuals, these have a joint transpose, too. JAX
        transposes a linear solve in all of its right-hand sides together only.
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

    def _pairs(self, found: Found, rule: KeptCall, wanted: Wanted) -> None:
        """Add fwd and bwd for all operands; if they refuse, for those that are perturbed.

        If they refuse these, add them for those among them that they accept. Where a result may
        have no cotangent, add them for what derivatives ask for, as of a rule that sees zeros.
        """
        try:
            all_operands = self._pair(found, rule, Asked(rule.own_mask))
        except RuleResultError:
            for each in self._recorded(rule, "vjp"):
                self._pair(found, rule, each)
            if not rules_in(found):
                raise
            found[SEES_ZEROS] = 1  # no other set may use them
            return
        if all_operands:
            self._add_for_other_sets(found, rule, "vjp")
            return
        if not rule.knows_operands_apart:
            return
        asked = self._asked_of(rule, wanted, "vjp")
        for each in asked:
            self._pair(found, rule, each)
        if not asked or _pair_names(asked[-1])[0] in found:
            found.pop(REFUSED, None)  # nobody asks for the others
        if not asked or rules_in(found):
            return
        if "1" in (joint := self._accepted(found, rule, "vjp", wanted.mask)):
            self._pair(found, rule, Asked(joint))

    def _add_for_other_sets(self, found: Found, rule: KeptCall, kind: str) -> None:
        """Add the rules for other operands and results, if the rule sees which these are.

        One that fails is left out: who asks for it is told that it is not there.
        """
        for asked in self._recorded(rule, kind) if rule.sees_zeros else ():
            part = Found()
            with contextlib.suppress(Exception):  # the user's rule may raise anything
                if kind == "vjp":
                    self._pair(part, rule, asked)
                else:
                    self.add(part, rule, kind, [asked.operands])
            found |= {name: part[name] for name in rules_in(part)}

    def _pair(self, found: Found, rule: KeptCall, asked: Asked) -> bool:
        """Add fwd and bwd for some operands and results; return True if they accept these."""
        names = _pair_names(asked)
        with _noting(found, _name("vjp", asked.operands)):
            found |= zip(names, self._stage(rule, "vjp", asked), strict=True)
            return True
        return False

    def _accepted(self, found: Found, rule: KeptCall, kind: str, perturbed: str) -> str:
        """Return the mask of the perturbed operands that there is a rule for.

        It is found by bisection, after a try of what another call of the primitive accepts: there
        may be many operands, and to trace a rule takes long.
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

    def _accepts(self, found: Found, rule: KeptCall, kind: str, mask: str) -> bool:
        """Return True if there is a rule for a mask; note the error if it refuses one operand."""
        notes = found if mask.count("1") == 1 else Found()
        return self._try(notes, rule, kind, mask, self.table.traced_rule) is not None

    def _asked_of(self, rule: KeptCall, wanted: Wanted, kind: str) -> list[Asked]:
        """Return what derivatives ask of a rule that tells its operands apart, the widest last.

        That is what derivatives of the program ask for, and what rules may perturb.
        """
        found = self._recorded(rule, kind)
        if not self._asked or wanted.in_rules:
            found.append(Asked(jointly([*(each.operands for each in found), wanted.mask])))
        return list(dict.fromkeys(found))

    def _recorded(self, rule: KeptCall, kind: str) -> list[Asked]:
        """Return what derivatives of the program ask of a rule, the widest last."""
        if self._asked is None:
            self._asked = _asked_by_derivatives(self.table, self.module, self.arguments)
        found = [asked for of, asked in self._asked.get(rule.key, ()) if of == kind]
        return sorted(found, key=lambda a: (a.operands.count("1"), a.results.count("1")))

    def add(self, found: Found, rule: KeptCall, kind: str, masks: Iterable[str]) -> None:
        """Add the rules of this kind that exist to `found`."""
        for mask in masks:
            if (staged := self._try(found, rule, kind, mask, self._stage)) is not None:
                found[_name(kind, mask)] = staged

    def _try(
        self,
        found: Found,
        rule: KeptCall,
        kind: str,
        mask: str,
        get: Callable[[KeptCall, str, Asked], Any],
    ) -> Any:
        """Return what `get` gives for a rule; None if it is missing or refuses, which is noted."""
        name = _name(kind, mask)
        if (rule.key, name) in self._missing:
            return None
        try:
            with _noting(found, name):
                return get(rule, kind, Asked(mask))
        except MissingRuleError:
            self._missing.add((rule.key, name))
        return None

    def _stage(self, rule: KeptCall, kind: str, asked: Asked) -> Any:
        return self.table.stage(self.linked, rule.key, kind, asked)

    def for_types(self, key: str, kind: str, asked: Asked) -> tuple[RuleName, str] | None:
        """Stage a rule for cotangents of other types; return its name in calls and its symbol.

        Return None if it does not fit the forward function that is there.
        """
        rule, mask = self.table[key], asked.operands
        staged = self.table.stage(self.linked, key, kind, asked)
        if kind == "vjp":
            name = RuleName.parse(_pair_names(asked)[1])._replace(types=asked.types)
            own = self.linked.functions[self._stage(rule, "vjp", asked._replace(types=()))[1]]
            other, count = self.linked.functions[staged[1]], len(asked.types)
            if _inputs(own)[:-count] != _inputs(other)[:-count]:
                return None
            return name, staged[1]
        mask = "" if rule.op == "pullback.linear_call" else mask
        return RuleName("transpose", mask, asked.types), str(staged)


def _inputs(function: Any) -> list[Any]:
    return list(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs)


class _Asked:
    """A rule table that records for which operands and cotangents it is asked for rules."""

    def __init__(self, table: CallTable) -> None:
        self._table = table
        self.masks: dict[str, dict[tuple[str, Asked], None]] = {}
        self.typed: dict[tuple[str, str, Asked], None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def stage(self, symbols: Symbols, key: str, kind: str, asked: Asked) -> Any:
        found = self._table.stage(symbols, key, kind, asked)
        self._note(key, kind, asked)
        return found

    def sources(self, key: str, kind: str, asked: Asked) -> Any:
        found = self._table.sources(key, kind, asked)
        self._note(key, kind, asked)
        return found

    def differentiate(self, module: ir.Module, *passes: Pass) -> None:
        """Run passes on a copy of a module, up to one that fails: who asks for it will be told."""
        copy = clone(module)
        with contextlib.suppress(Exception):
            for each in passes:
                each.run(copy, self)

    def _note(self, key: str, kind: str, asked: Asked) -> None:
        if "0" not in asked.results:
            asked = asked._replace(results="")
        if asked.types:
            results = asked.results if self._table[key].sees_zeros else ""
            self.typed[key, kind, asked._replace(results=results)] = None
        if kind != "transpose":
            self.masks.setdefault(key, {})[kind, asked._replace(types=())] = None


def _asked_by_derivatives(table: CallTable, module: ir.Module, arguments: Arguments) -> ByKey:
    """Differentiate copies of a module, and return by key what that asks of rules.

    First derivatives are by sets of arguments, and second ones by all. The result is empty if the
    module has no gradient by all.
    """
    asked = _Asked(table)
    takes, gives = kinds_in(functions(module)["main"])
    every = [i for i, kind in enumerate(takes) if kind.inexact]
    groups = [[i for i in group if i in every] for group in arguments or [[i] for i in every]]
    results = [i for i, kind in enumerate(gives) if kind.inexact]
    try:
        VJP().run(clone(module), asked)
    except Exception:  # whoever asks for it will be told
        return {}
    sets = [wrt for wrt in _sets(list(filter(None, groups))) if len(wrt) < len(every)]
    alone = [VJP(outs=(i,)) for i in results if len(results) > 1]
    for first in (*alone, *[each(wrt=wrt) for wrt in sets for each in (VJP, JVP)]):
        asked.differentiate(module, first)
    for of_all, again in itertools.product((VJP(), JVP()), (VJP, JVP)):
        asked.differentiate(module, of_all, again(wrt=tuple(every)))
    return asked.masks


def _sets(arguments: Arguments) -> list[tuple[int, ...]]:
    """Return sets of arguments to differentiate by: if there are many, of one, all but one, all."""
    count = len(arguments)
    sizes = range(1, count + 1) if count <= _FEW else (1, count - 1, count)
    chosen = [some for size in sizes for some in itertools.combinations(arguments, size)]
    return [tuple(itertools.chain(*some)) for some in chosen]


def asked_for_types(table: CallTable, module: ir.Module, order: int) -> list[Any]:
    """Return keys, kinds and masks of rules asked for by cotangents of other types than results.

    They are those that derivatives up to the second order ask for, by each result and by all.
    """
    _, gives = kinds_in(functions(module)["main"])
    outs = [i for i, kind in enumerate(gives) if kind.inexact]
    asked = _Asked(table)
    again = (VJP(),) * (min(order, 2) - 1)
    for chosen in (None, *((i,) for i in outs if len(outs) > 1)):
        asked.differentiate(module, VJP(outs=chosen), *again)
    return list(asked.typed)


def _name(kind: str, mask: str) -> str:
    """Return the attribute by which a call names its rule for a mask."""
    return f"{kind}.{mask}" if kind == "transpose" or "0" in mask else kind


def _pair_names(asked: Asked) -> tuple[str, str]:
    """Return the attributes by which a call names the two functions of a backward rule."""
    full = "0" not in asked.results
    if full and "0" not in asked.operands:
        return "fwd", "bwd"
    name = RuleName("fwd", asked.operands, results="" if full else asked.results)
    return str(name), str(name._replace(kind="bwd"))


def rules_in(found: Found) -> set[str]:
    return found.keys() - {REFUSED, SEES_ZEROS}


@contextlib.contextmanager
def _noting(found: Found, name: str) -> Iterator[None]:
    """Run the body and record the error that the rule of this name raises in it.

    Errors of pullback propagate, such as that there is no rule; not those of leaked values.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, PullbackError) and not isinstance(error, LeakedValueError):
            raise
        found.setdefault(REFUSED, {})[name] = locations.words_of(error)
