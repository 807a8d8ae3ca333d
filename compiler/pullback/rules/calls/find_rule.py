"""Find the rules of a call: those that the op names, or that the rule table stages on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pullback._jax import ir
from pullback.autodiff.registry import Op, Tangents
from pullback.autodiff.state import Differentiation
from pullback.autodiff.zeros import stays_zero
from pullback.errors import LeakedValueError, MissingRuleError
from pullback.ir import ops
from pullback.ir.build import inexact
from pullback.ir.locations import user_line
from pullback.ir.masks import Asked, mask_of, masked, singles, within
from pullback.ir.regions import terminator
from pullback.rules.calls.func_call import scatter
from pullback.rules.calls.linear_call import (
    check_not_refused,
    cotangent_types,
    holds_exact_rules,
    missing_exact_rule,
    missing_rule_of,
    staged_for_types,
)


def inexact_mask(op: Op) -> str:
    """Return one character per inexact operand: '1' where it is active."""
    return mask_of([a for v, a in zip(op.operands, op.active, strict=True) if inexact(v.type)])


def rule_mask(op: Op) -> str:
    """Return the mask of active inexact operands, as `inexact_mask`, without closed-over operands.

    A closed-over operand may be active if only the rules use it, and the results do not depend on
    it.

    Raises:
      MissingRuleError: the results do depend on one. A user's rule says nothing of that; JAX
        raises, or gives zero.
    """
    view, mask = ops.view(op.operation), inexact_mask(op)
    count = view.closed_over
    if True not in op.active[:count]:
        return mask
    closed_over = mask_of([*op.active[:count], *[False] * (len(op.operands) - count)])
    if any(op.frame.diff.function_activity(view.decomposition, closed_over, op.frame)):
        kind = view.NAME.removeprefix("pullback.").removesuffix("_call")
        raise MissingRuleError(
            f"`{view.decomposition}` has a {kind} rule and closes over a value that is "
            "differentiated",
            where=user_line(op.operation.location),
            do=f"pass the value as an argument of the {kind} function, or through stop_gradient",
        )
    return mask_of([a == o == "1" for a, o in zip(mask, view.own_mask, strict=True)])


def of_kind(op: Op, find: Callable[[Op, Tangents], Any], values: Tangents = ()) -> Any:
    """Memoize `find` over all calls with the same rules, active operands and present values.

    If the call closes over values, the key has its function as well: see `rule_mask`.
    """
    attributes, given = op.attributes.get("composite_attributes"), [v is not None for v in values]
    closes_over = attributes is not None and "closed_over" in ir.DictAttr(attributes)
    function = op.attributes["decomposition"] if closes_over else None
    key = find, attributes, function, tuple(op.active), tuple(given), tuple(op.wide)
    return op.frame.diff.cached(key, lambda: find(op, values))


def jvp_rules(op: Op) -> list[tuple[str, str]]:
    """Return (mask, function) pairs whose tangents add up to those of the op."""
    return of_kind(op, _find_jvp_rules)


def _find_jvp_rules(op: Op, tangents: Tangents) -> list[tuple[str, str]]:
    view, mask = ops.view(op.operation), rule_mask(op)
    full = view.own_mask
    found = find_rule(op.frame.diff, view, "jvp", mask)
    if found is not None:
        return [(mask, found)]
    if holds_exact_rules(view):
        check_not_refused(view, "jvp", [full])
        raise missing_exact_rule(view, "jvp", Asked(mask))
    if (staged := view.covering(mask)) is not None:
        return [staged]
    if mask.count("1") > 1:  # one that raises may see what is perturbed: no sum of parts
        check_not_refused(view, "jvp", [full])
    parts = [(m, find_rule(op.frame.diff, view, "jvp", m)) for m in singles(mask)]
    missing = [m for m, f in parts if f is None]
    if missing and (whole := find_rule(op.frame.diff, view, "jvp", full)) is not None:
        return [(full, whole)]  # a linear solve wants tangents for all of a tree, or for none
    if missing:
        check_not_refused(view, "jvp", [full])
        if view.rule_key is not None:
            op.frame.diff.stage(view.rule_key, "jvp", Asked(missing[0]))  # raises, with the reason
        which = f" with respect to inexact operand {missing[0].index('1')}"
        raise missing_rule_of(view, "jvp", which)
    return [(m, f) for m, f in parts if f is not None]


def find_rule(diff: Differentiation, view: Any, kind: str, mask: str) -> Any:
    """Return the function of a rule, named by the op or staged on demand; None if there is none.

    A rule that rejects its operands raises: the user's own exception if staged, else its text.
    """
    named = getattr(view, kind)(mask)
    if named is not None:
        return named
    check_not_refused(view, kind, [mask])
    if view.rule_key is None:
        return None
    try:
        return diff.stage(view.rule_key, kind, Asked(mask))
    except LeakedValueError:
        raise
    except MissingRuleError:
        return None


def in_mask(op: Op, mask: str) -> list[int]:
    """Return the operands that a rule with this mask has tangents or cotangents for."""
    return masked(ops.inexact_positions(op.operands), mask)


def inexact_results(op: Op) -> list[int]:
    return [i for i, r in enumerate(op.results) if inexact(r.type)]


_KNOWN_ZEROS: WeakKeyDictionary[Any, list[bool]] = WeakKeyDictionary()


def _zeros_before_linking(op: Op) -> list[bool] | None:
    """Return `zero_results` of a rule without linking it from the rule table into the module.

    Many calls that are active are never differentiated, such as a maximum that is subtracted under
    stop_gradient: linking their rules would be in vain. None if it has to be linked.
    """
    view = ops.view(op.operation)
    if list(view.attributes) != [ops.RULE]:
        return None
    rules = op.frame.diff.rules
    if rules.stops(view.rule_key):
        return [True] * (len(op.results) + len(inexact_results(op)))
    try:
        (source,) = rules.sources(view.rule_key, "jvp", Asked(rule_mask(op)))
    except MissingRuleError:
        return None
    if source not in _KNOWN_ZEROS:
        functions = source.library.functions
        block = functions[source.entry].regions[0].blocks[0]
        _KNOWN_ZEROS[source] = _zeros(block, functions)
    return _KNOWN_ZEROS[source]


def _zeros(block: Any, functions: Mapping[str, Any]) -> list[bool]:
    return [stays_zero(v, functions) for v in terminator(block).operands]


def zero_results(diff: Differentiation, name: str) -> list[bool]:
    """Return for each result of a function whether it is certainly zero."""
    return diff.cached(("zero", name), lambda: _zeros(diff.block(name), diff.functions))


def vjp_activity(op: Op, tangents: Tangents) -> list[bool]:
    """Return True for each inexact result if the rules differentiate by an active operand."""
    moves = "1" in rule_mask(op)
    return [moves and inexact(r.type) for r in op.results]


def jvp_activity(op: Op, tangents: Tangents) -> list[bool]:
    """Return the flags of `vjp_activity`, but False where all rules return a zero tangent."""
    flags = vjp_activity(op, tangents)
    if True not in flags:
        return flags
    count, staged = len(op.results), _zeros_before_linking(op)
    found = [staged] if staged else [zero_results(op.frame.diff, f) for _, f in jvp_rules(op)]
    zero = [of_one[count:] for of_one in found]
    return [found is False for found in scatter(flags, list(map(all, zip(*zero, strict=True))))]


def vjp_rule(op: Op, absent: str = "") -> tuple[str, str, str]:
    """Return the names of fwd and bwd, and the mask of the inexact operands that bwd is for.

    `absent` has '1' for each inexact result whose cotangent is zero, if that is known.
    """
    view, mask = ops.view(op.operation), rule_mask(op)
    present = absent.translate(_OPPOSITE) or "1" * len(inexact_results(op))
    types = cotangent_types(op)
    for fwd, bwd, covered, given in view.pairs():
        if (mask, present) == (covered, given) if view.sees_zeros else within(mask, covered):
            if types and (found := view.backward_for(covered, types, given)) is not None:
                return fwd, found, covered
            if types and (staged := staged_for_types(op, "vjp", Asked(covered), types)) is not None:
                return *staged, covered
            return fwd, bwd, covered
    check_not_refused(view, "vjp", [mask, *singles(mask), view.mask])
    if holds_exact_rules(view):
        raise missing_exact_rule(view, "vjp", Asked(mask, present))
    if view.rule_key is None:
        raise missing_rule_of(view, "vjp")
    asked = Asked(mask, present if "0" in present else "")
    if types and (staged := staged_for_types(op, "vjp", asked, types)) is not None:
        return *staged, mask
    return *op.frame.diff.stage(view.rule_key, "vjp", asked), mask


_OPPOSITE = str.maketrans("01", "10")
