"""The derivative ops: custom_jvp_call, custom_vjp_call, linear_call; and other composites."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pullback._errors import LeakedValueError, MissingRuleError, NotLinearError
from pullback._jax import ir
from pullback.dialect import build, ops
from pullback.dialect.build import Value, add, inexact
from pullback.frontend.locations import user_line
from pullback.passes.differentiation import (
    Differentiation,
    mask_of,
    replace_terminator,
    set_signature,
    terminator,
)
from pullback.passes.inlining import call
from pullback.passes.reverse import Split, split, transpose
from pullback.passes.zeros import given_zeros, is_zero
from pullback.rules.calls import before, jvp_of_function, scatter, vjp_of_function
from pullback.rules.linear_calls import (
    check_not_refused,
    linear_call_jvp,
    linear_call_vjp,
    missing_rule_of,
)
from pullback.rules.registry import (
    NONDIFFERENTIABLE,
    RULES,
    Op,
    Rule,
    Tangents,
    jointly,
    never,
    rule,
)


def _by_name(op: Op) -> Rule:
    """The rule that somebody has registered for composites of this name, if there is one."""
    name = str(ops.composite_name(op.operation))
    own = _ZERO if name in NONDIFFERENTIABLE else RULES.get(name)
    return own if own is not None and (own is _ZERO or own.checked) else op.rule


def _no_tangents(op: Op, tangents: Tangents) -> list[Value | None]:
    return [None] * len(op.results)


def _inactive(op: Op) -> list[bool]:
    return [False] * len(op.results)


_ZERO = Rule(
    "stablehlo.composite", _no_tangents, _no_tangents, never, __name__, "own", activity=_inactive
)


@rule("stablehlo.composite", linear=jointly, family="control", variant=_by_name)
class Composite:
    """The three derivative ops; a composite without a rule of its own is its decomposition."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        kind = ops.composite_name(op.operation)
        ours = kind in _VJP
        with contextlib.suppress(*[MissingRuleError] * ours):
            if not ours or op.frame.linear:
                # A linear call may be transposed by its own rule, whatever its decomposition does.
                return op.frame.diff.function_activity(
                    decomposition(op), mask_of(op.active), op.frame
                )
            if kind == "pullback.custom_jvp_call":
                return of_kind(op, _rule_activity)
        return [inexact(r.type) for r in op.results]

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        kind = str(ops.composite_name(op.operation))
        return _JVP.get(kind, _decomposition_jvp)(op, tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        kind = str(ops.composite_name(op.operation))
        return _VJP.get(kind, _decomposition_vjp)(op, cts)


def decomposition(op: Op) -> str:
    return ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value


def _decomposition_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    return jvp_of_function(op, decomposition(op), tangents)


def _decomposition_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    return vjp_of_function(op, decomposition(op), cts)


# -------------------------------------------------------------------------- custom_jvp_call


def inexact_mask(op: Op) -> str:
    """One character per inexact operand: '1' where it is active."""
    return mask_of([a for v, a in zip(op.operands, op.active, strict=True) if inexact(v.type)])


def of_kind(op: Op, find: Callable[[Op, Tangents], Any], values: Tangents = ()) -> Any:
    """What holds for all calls with these rules, active operands and values; found once."""
    attributes, given = op.attributes.get("composite_attributes"), [v is not None for v in values]
    key = find, attributes, tuple(op.active), tuple(given)
    return op.frame.diff.cached(key, lambda: find(op, values))


def jvp_rules(op: Op) -> list[tuple[str, str]]:
    """(mask, function) pairs whose tangents add up to the op's."""
    return of_kind(op, _find_jvp_rules)


def _find_jvp_rules(op: Op, tangents: Tangents) -> list[tuple[str, str]]:
    view, mask = ops.view(op.operation), inexact_mask(op)
    full = view.own_mask
    _refuse_closed_over(op, mask, full)
    found = find_rule(op.frame.diff, view, "jvp", mask)
    if found is not None:
        return [(mask, found)]
    if (staged := view.jvp(full)) is not None:
        return [(full, staged)]
    parts = [(m, find_rule(op.frame.diff, view, "jvp", m)) for m in _singles(mask)]
    missing = [m for m, f in parts if f is None]
    if missing and (whole := find_rule(op.frame.diff, view, "jvp", full)) is not None:
        return [(full, whole)]  # a linear solve wants tangents for all of a tree, or for none
    if missing:
        check_not_refused(view, "jvp", [full])
        if view.rule_key is not None:
            op.frame.diff.stage(view.rule_key, "jvp", missing[0])  # raises, with the reason
        which = f" with respect to inexact operand {missing[0].index('1')}"
        raise missing_rule_of(view, "jvp", which)
    return [(m, f) for m, f in parts if f is not None]


def _singles(mask: str) -> list[str]:
    """The masks of each operand of a mask alone."""
    return [mask_of([i == j for i in range(len(mask))]) for j, m in enumerate(mask) if m == "1"]


def find_rule(diff: Differentiation, view: Any, kind: str, mask: str) -> Any:
    """The function of a rule: named by the op, or staged on demand; None if there is none.

    One that refuses raises: the user's own exception where it is staged, its words in a file.
    """
    named = getattr(view, kind)(mask)
    if named is not None:
        return named
    check_not_refused(view, kind, [mask])
    if view.rule_key is None:
        return None
    try:
        return diff.stage(view.rule_key, kind, mask)
    except LeakedValueError:
        raise
    except MissingRuleError:
        return None


def _in_mask(op: Op, mask: str) -> list[int]:
    """The operands that a rule with this mask has tangents or cotangents for."""
    slots = [i for i, v in enumerate(op.operands) if inexact(v.type)]
    return [i for i, m in zip(slots, mask, strict=True) if m == "1"]


def _inexact_results(op: Op) -> list[int]:
    return [i for i, r in enumerate(op.results) if inexact(r.type)]


_KNOWN_ZEROS: WeakKeyDictionary[Any, list[bool]] = WeakKeyDictionary()


def _zeros_before_linking(op: Op) -> list[bool] | None:
    """`zero_results` of a rule that is in the table only, and may stay there.

    Many calls that are active are not differentiated after all: a maximum that is subtracted
    behind stop_gradient.
    """
    view = ops.view(op.operation)
    if list(view.attributes) != [ops.RULE]:
        return None
    try:
        (source,) = op.frame.diff.rules.sources(view.rule_key, "jvp", inexact_mask(op))
    except MissingRuleError:
        return None
    if source not in _KNOWN_ZEROS:
        results = terminator(source.functions[source.entry].regions[0].blocks[0]).operands
        _KNOWN_ZEROS[source] = [is_zero(v, source.functions) for v in results]
    return _KNOWN_ZEROS[source]


def zero_results(diff: Differentiation, name: str) -> list[bool]:
    """Which results of a function are zero for certain."""

    def compute() -> list[bool]:
        results = terminator(diff.block(name)).operands
        return [is_zero(v, diff.functions) for v in results]

    return diff.cached(("zero", name), compute)


def _rule_activity(op: Op, tangents: Tangents) -> list[bool]:
    """Results whose tangents some rule does not say to be zero; `stop_gradient` has none."""
    count, staged = len(op.results), _zeros_before_linking(op)
    found = [staged] if staged else [zero_results(op.frame.diff, f) for _, f in jvp_rules(op)]
    zero = [of_one[count:] for of_one in found]
    flags = [inexact(r.type) for r in op.results]
    return [found is False for found in scatter(flags, list(map(all, zip(*zero, strict=True))))]


@dataclass(frozen=True)
class Pushforward:
    """A rule in forward mode: (operands…, tangents…) → (results…, tangents…).

    `takes` are the operands whose tangents it receives; `gives` the result for each that it
    returns, None for one that is zero.
    """

    function: str
    takes: list[int]
    gives: list[int | None]


def _custom_jvp_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    diff, count = op.frame.diff, len(op.results)
    total, results = [None] * count, []
    for each in of_kind(op, _pushforwards, tangents):
        given = [build.instantiate(tangents[i], op.operands[i]) for i in each.takes]
        results.append(call(diff, each.function, [*op.operands, *given]))
        for i, t in zip(each.gives, results[-1][count:], strict=True):
            if i is not None:
                total[i] = add(total[i], t)
    op.frame.replace(op, results[0][:count])
    return total


def _pushforwards(op: Op, tangents: Tangents) -> list[Pushforward]:
    diff, count, rules = op.frame.diff, len(op.results), []
    for mask, jvp in jvp_rules(op):
        takes = _in_mask(op, mask)
        absent = mask_of([tangents[i] is None for i in takes])
        name = given_zeros(diff, jvp, "0" * len(op.operands) + absent)
        zero = zero_results(diff, name)[count:]
        pairs = zip(_inexact_results(op), zero, strict=True)
        rules.append(Pushforward(name, takes, [None if z else i for i, z in pairs]))
    return rules


@dataclass(frozen=True)
class Pullback:
    """A rule in reverse: what calls of one kind do, for given active operands and cotangents.

    forward: (operands…) → (results…, residuals…); backward: (residuals…, cts…) → (cts…).
    """

    forward: str
    kept: int  # results of `forward` in front of the residuals
    backward: str
    takes: list[int]  # the results whose cotangents `backward` receives
    gives: list[int | None]  # the operand that each of its results is for, if it is for any


def _pull_back(op: Op, cts: Tangents, rules: Sequence[Pullback]) -> list[Value | None]:
    """Call the rules forward in the place of the op, and backward here."""
    frame, total = op.frame, [None] * len(op.operands)
    with before(op):
        results = [call(frame.diff, each.forward, op.operands) for each in rules]
    given = [[build.instantiate(cts[i], op.results[i]) for i in each.takes] for each in rules]
    frame.replace(op, results[0][: len(op.results)])
    for each, values, slots in zip(rules, results, given, strict=True):
        if not slots:
            continue
        residuals = map(frame.primal, values[each.kept :])
        found = call(frame.diff, each.backward, [*residuals, *slots])
        for i, ct in zip(each.gives, found, strict=True):
            if i is not None:
                total[i] = add(total[i], ct)
    return total


def _custom_jvp_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    if op.frame.linear:
        return _transposed_rule(op, cts)
    return _pull_back(op, cts, of_kind(op, _transposed_rules, cts))


def _transposed_rules(op: Op, cts: Tangents) -> list[Pullback]:
    count, slots = len(op.results), _inexact_results(op)
    ct_mask = "0" * count + mask_of([cts[i] is not None for i in slots])
    rules = []
    for mask, pair, ct_now in _linear_parts(op, ct_mask):
        takes = [i for i, m in zip(slots, ct_now[count:], strict=True) if m == "1"]
        pairs = zip(_in_mask(op, mask), pair.nonzero, strict=True)
        gives = [i if op.active[i] else None for i, nonzero in pairs if nonzero]
        rules.append(Pullback(pair.forward, len(pair.kept), pair.backward, takes, gives))
    return rules


def _linear_parts(op: Op, ct_mask: str) -> list[tuple[str, Split, str]]:
    """The rules of a call, each with its linear part split off, and the cotangents it receives.

    A rule for some of the operands has zeros for the tangents of the others. Where it is not seen
    that a term is zero for that reason, the rule for all of them shows what is linear.
    """
    rules = jvp_rules(op)
    try:
        return [_linear_part(op, *rule, ct_mask) for rule in rules]
    except NotLinearError:
        view = ops.view(op.operation)
        mask = view.own_mask
        whole = find_rule(op.frame.diff, view, "jvp", mask)
        if whole is None or rules[0][0] == mask or len(rules) > 1:
            raise
        return [_linear_part(op, mask, whole, ct_mask)]


def _linear_part(op: Op, mask: str, name: str, ct_mask: str) -> tuple[str, Split, str]:
    diff = op.frame.diff
    ct_now = _without_zeros(ct_mask, zero_results(diff, name))
    linear = "0" * len(op.operands) + "1" * mask.count("1")
    return mask, split(diff, name, linear, ct_now, True), ct_now


def _without_zeros(ct_mask: str, zero: Sequence[bool]) -> str:
    return mask_of([m == "1" and not z for m, z in zip(ct_mask, zero, strict=True)])


def _transposed_rule(op: Op, cts: Tangents) -> list[Value | None]:
    """A custom_jvp_call on linear operands: JAX's own transpose, else that of the primal."""
    view, mask = ops.view(op.operation), inexact_mask(op)
    name = find_rule(op.frame.diff, view, "transpose", mask)
    if name is None:
        return _decomposition_vjp(op, cts)
    fixed = [op.operand(i) for i, a in enumerate(op.active) if not a]
    given = [
        build.instantiate(ct, r) for ct, r in zip(cts, op.results, strict=True) if inexact(r.type)
    ]
    return scatter(op.active, call(op.frame.diff, name, [*fixed, *given]))


# -------------------------------------------------------------------------- custom_vjp_call


def vjp_rule(op: Op) -> tuple[str, str, str]:
    """Names of fwd and bwd, and the mask of the inexact operands that bwd has cotangents for."""
    view, mask = ops.view(op.operation), inexact_mask(op)
    pairs = view.pairs()
    _refuse_closed_over(op, mask, view.own_mask)
    for fwd, bwd, covered in pairs:
        if all(c == "1" for a, c in zip(mask, covered, strict=True) if a == "1"):
            return fwd, bwd, covered
    check_not_refused(view, "vjp", [mask, *_singles(mask), view.mask])
    if view.rule_key is None:
        raise missing_rule_of(view, "vjp")
    return *op.frame.diff.stage(view.rule_key, "vjp", mask), mask


def _refuse_closed_over(op: Op, active: str, own: str) -> None:
    """A user's rule says nothing of what the function closes over: JAX refuses, or gives zero."""
    if any(a > o for a, o in zip(active, own, strict=True)):
        view = ops.view(op.operation)
        kind = view.NAME.removeprefix("pullback.").removesuffix("_call")
        raise MissingRuleError(
            f"`{view.decomposition}` has a {kind} rule and closes over a value that is "
            "differentiated",
            where=user_line(op.operation.location),
            do=f"pass the value as an argument of the {kind} function, or through stop_gradient",
        )


def _custom_vjp_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    """call fwd; then the transpose of bwd, as a linear_call whose transpose is bwd itself."""
    rule = of_kind(op, _transposed_vjp_rule, tangents)
    if rule is None:
        return _custom_jvp_jvp(op, tangents)
    results = call(op.frame.diff, rule.forward, op.operands)
    residuals = results[rule.kept :]
    linear = ops.linear_call(
        rule.transpose,
        [*residuals, *(tangents[i] for i in rule.takes)],
        [op.results[i].type for i in rule.gives],
        num_residuals=len(residuals),
        transpose=rule.backward,
        loc=build.here.loc,
        ip=build.here.ip,
    )
    op.frame.replace(op, results[: rule.kept])
    total: list[Value | None] = [None] * rule.kept
    for i, t in zip(rule.gives, linear.results, strict=True):
        total[i] = t
    return total


@dataclass(frozen=True)
class TransposedPullback:
    """A custom_vjp rule in forward mode; the fields are those of `Pullback`, the other way round.

    transpose: (residuals…, tangents of `takes`…) → (tangents of `gives`…).
    """

    forward: str
    kept: int
    transpose: str
    backward: str
    takes: list[int]
    gives: list[int]


def _transposed_vjp_rule(op: Op, tangents: Tangents) -> TransposedPullback | None:
    """None for a call that has a jvp rule as well."""
    view, mask = ops.view(op.operation), inexact_mask(op)
    if view.jvp(mask) is not None or view.jvp(view.own_mask) is not None:
        return None
    diff, gives = op.frame.diff, _inexact_results(op)
    fwd, bwd, mask = vjp_rule(op)
    covered = _in_mask(op, mask)
    bwd = _with_results(diff, bwd, mask_of([tangents[i] is not None for i in covered]))
    takes = [i for i in covered if tangents[i] is not None]
    linear_mask = "0" * _residuals(op, fwd) + "1" * len(gives)
    forward = _forward_of_backward(op, bwd, linear_mask, "1" * len(takes))
    return TransposedPullback(fwd, len(op.results), forward, bwd, takes, gives)


def _residuals(op: Op, fwd: str) -> int:
    """How many residuals a fwd rule returns, behind the results."""
    return len(terminator(op.frame.diff.block(fwd)).operands) - len(op.results)


def _with_results(diff: Differentiation, name: str, mask: str) -> str:
    """A copy of @name that gives the masked results only."""

    def derive() -> str:
        copy = diff.clone_function(name, f"{name}.{mask}")
        block = diff.block(copy)
        results = terminator(block).operands
        replace_terminator(block, [v for v, m in zip(results, mask, strict=True) if m == "1"])
        set_signature(diff.function(copy))
        return copy

    return name if "0" not in mask else diff.cached(("results", name, mask), derive)


def _forward_of_backward(op: Op, bwd: str, linear_mask: str, ct_mask: str) -> str:
    """The transpose of a backward rule; an error in it that names no line names the call's."""
    try:
        return transpose(op.frame.diff, bwd, linear_mask, ct_mask)
    except NotLinearError as error:
        if error.where is None:
            line = user_line(op.operation.location)
            error.where = f"`@{bwd}`, the backward rule of the call" + (f" at {line}" * bool(line))
        raise


def _custom_vjp_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    if op.frame.linear:
        return _decomposition_vjp(op, cts)
    return _pull_back(op, cts, of_kind(op, _vjp_rules, cts))


def _vjp_rules(op: Op, cts: Tangents) -> list[Pullback]:
    diff, takes = op.frame.diff, _inexact_results(op)
    fwd, bwd, mask = vjp_rule(op)
    absent = mask_of([cts[i] is None for i in takes])
    bwd = given_zeros(diff, bwd, "0" * _residuals(op, fwd) + absent)
    pairs = zip(_in_mask(op, mask), zero_results(diff, bwd), strict=True)
    gives = [i if op.active[i] and not zero else None for i, zero in pairs]
    return [Pullback(fwd, len(op.results), bwd, takes, gives)]


_JVP = {
    "pullback.custom_jvp_call": _custom_jvp_jvp,
    "pullback.custom_vjp_call": _custom_vjp_jvp,
    "pullback.linear_call": linear_call_jvp,
}
_VJP = {
    "pullback.custom_jvp_call": _custom_jvp_vjp,
    "pullback.custom_vjp_call": _custom_vjp_vjp,
    "pullback.linear_call": linear_call_vjp,
}
