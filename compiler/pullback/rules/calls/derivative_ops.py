"""Differentiate composites: custom_jvp_call, custom_vjp_call, linear_call, and all others."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback import _jax
from pullback._jax import ir, remat
from pullback.autodiff.batch_rules import BATCHES, MappedOp, batch, batch_alike
from pullback.autodiff.batching import BatchSignature
from pullback.autodiff.checks import function_name, go_forward, is_named
from pullback.autodiff.forward import Forward, Refused
from pullback.autodiff.functions import SplitFunction, split, transpose, with_result_types
from pullback.autodiff.pending import added, as_given
from pullback.autodiff.registry import (
    NONDIFFERENTIABLE,
    RULES,
    Op,
    Row,
    Rule,
    Tangents,
    jointly,
    rule,
    without_derivative,
)
from pullback.autodiff.residuals import asks_for_equality
from pullback.autodiff.reverse import check_no_term
from pullback.autodiff.state import Differentiation, call
from pullback.autodiff.zeros import given_zeros
from pullback.errors import (
    ArgumentMismatchError,
    LeakedValueError,
    MissingRuleError,
    NotLinearError,
    RuleResultError,
)
from pullback.ir import build, ops
from pullback.ir.build import Value, add, inexact
from pullback.ir.dependence import dependents
from pullback.ir.locations import user_line
from pullback.ir.masks import Asked, behind, mask_of, masked, within
from pullback.ir.regions import terminator
from pullback.ir.signatures import keep_results
from pullback.ir.symbols import CALL
from pullback.rules.calls.find_rule import (
    find_rule,
    in_mask,
    inexact_mask,
    inexact_results,
    jvp_activity,
    jvp_rules,
    of_kind,
    rule_mask,
    vjp_activity,
    vjp_rule,
    zero_results,
)
from pullback.rules.calls.func_call import (
    before,
    call_again,
    call_is_diagonal,
    called_again,
    diagonal_cotangents,
    jvp_of_function,
    reached_by_function,
    scatter,
    vjp_of_function,
)
from pullback.rules.calls.linear_call import (
    as_taken,
    cotangent_types,
    linear_call_is_diagonal,
    linear_call_jvp,
    linear_call_vjp,
    staged_for_types,
)


def _by_name(op: Op) -> Rule:
    """Return the rule for composites of this name, else the one for their decompositions."""
    name = _own_name(op)
    if name == ops.CustomVJPCall.NAME and _goes_through_function(op):
        return op.rule
    return _ZERO if name in NONDIFFERENTIABLE else RULES.get(name, op.rule)


def _own_name(op: Op | MappedOp) -> str:
    """Return the name of a composite; empty if it is the name of a registered op.

    Such an op has its attributes elsewhere, so that its rule cannot read them.
    """
    name = str(ops.composite_name(op.operation))
    return "" if op.operation.context.is_registered_operation(name) else name


_ZERO = without_derivative("stablehlo.composite", __name__)


def _goes_through_function(op: Op) -> bool:
    """Return True if the code of a custom_vjp function is differentiated, and not its rules.

    Raises:
      ArgumentMismatchError: that would drop a rule that forward mode can take, of a function that
        is not named.
    """
    through, view = op.frame.diff.through, ops.view(op.operation)
    if through == "rules":
        return False
    if through != "function":
        return any(is_named(view, name) for name in through.split(","))
    if _has_jvp_rule(op):
        return False
    if isinstance(op.frame, Forward) and _has_linear_rule(op):
        name = function_name(view)
        raise ArgumentMismatchError(
            f'through="function" drops the rule of `{name}`, which is linear, so that forward mode '
            "can take it",
            where=user_line(op.operation.location),
            do='name the functions whose code is to be differentiated: through={f: "function"}; '
            f'"{name}" among them, if its rule is not wanted',
        )
    return True


def _has_linear_rule(op: Op) -> bool:
    """Return True if forward mode can transpose the backward rule of a call."""
    active: Any = [a or None for a in op.active]
    with contextlib.suppress(MissingRuleError):
        return isinstance(of_kind(op, _transposed_vjp_rule, active), TransposedPullback)
    return False


def _has_jvp_rule(op: Op) -> bool:
    """Return True if a custom_vjp call has a rule for forward mode, even if it raises."""
    view = ops.view(op.operation)
    if any(name.partition(".")[0] == "jvp" for name in (*view.symbols, *view.refused)):
        return True
    return view.rule_key is not None and op.frame.diff.rules.goes_forward(view.rule_key)


@rule("stablehlo.composite", linear=jointly, family="control", variant=_by_name, hands_on=True)
class Composite:
    """The rule of composites without one of their own: differentiate the decomposition."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return _activity_of_function(op)

    @staticmethod
    def reached(op: Op, results: Sequence[bool]) -> list[bool]:
        return reached_by_function(op, decomposition(op), results)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return jvp_of_function(op, decomposition(op), tangents)

    @staticmethod
    def carry(op: Op, rows: Sequence[Row | None]) -> Sequence[Row | None]:
        return op.frame.through(op, decomposition(op), rows)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return vjp_of_function(op, decomposition(op), cts)

    @staticmethod
    def diagonal(op: Op, cts: Tangents) -> bool:
        return call_is_diagonal(op, decomposition(op), cts)


def _activity_of_function(op: Op) -> list[bool]:
    return op.frame.diff.function_activity(decomposition(op), mask_of(op.active), op.frame)


def _activity_of_map(op: Op, shows_all: bool = True) -> list[bool]:
    """Return which results of a linear map are active: by the code of the function, or else all.

    It may be linear by its own transpose alone, as `jnp.ldexp`, which goes through bits. That of a
    linear_call may be of more results than its code shows (not `shows_all`).
    """
    with contextlib.suppress(MissingRuleError):
        flags = _activity_of_function(op)
        if (shows_all and any(flags)) or not of_kind(op, _has_transpose):
            return flags
    return _inexact(op)


def _inexact(op: Op) -> list[bool]:
    return [inexact(r.type) for r in op.results]


def decomposition(op: Op) -> str:
    return ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value


# -------------------------------------------------------------------------- custom_jvp_call


@dataclass(frozen=True)
class Pushforward:
    """A rule in forward mode: (operands…, tangents…) → (results…, tangents…).

    `takes` are the operands whose tangents it receives. `gives` has the index of a result for each
    tangent that the rule returns; None for a tangent that is zero.
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
        takes = in_mask(op, mask)
        absent = mask_of([tangents[i] is None for i in takes])
        name = given_zeros(diff, jvp, "0" * len(op.operands) + absent)
        zero = zero_results(diff, name)[count:]
        pairs = zip(inexact_results(op), zero, strict=True)
        rules.append(Pushforward(name, takes, [None if z else i for i, z in pairs]))
    return rules


@dataclass(frozen=True)
class Pullback:
    """A rule in reverse mode, for calls of one kind with given active operands and cotangents.

    forward: (operands…) → (results…, residuals…); backward: (residuals…, cts…) → (cts…).
    """

    forward: str
    kept: int  # results of `forward` before the residuals
    backward: str
    takes: list[int]  # the results whose cotangents `backward` receives
    gives: list[int | None]  # the operand that each of its results is for, if it is for any
    compared: Sequence[int] = ()  # of the residuals: see `SplitFunction`


def _pull_back(op: Op, cts: Tangents, rules: Sequence[Pullback]) -> list[Value | None]:
    """Call the rules' forward functions in the place of the op, and the backward ones here."""
    frame, total = op.frame, [None] * len(op.operands)
    with before(op):
        results = [call(frame.diff, each.forward, op.operands) for each in rules]
    given = [[op.instantiate(cts[i], op.results[i]) for i in each.takes] for each in rules]
    frame.replace(op, results[0][: len(op.results)])
    for each, values, slots in zip(rules, results, given, strict=True):
        if not slots:
            continue
        if op.wide:
            slots = as_taken(frame.diff, each.backward, slots)
        residuals = frame.residuals(values[each.kept :], each.compared)
        found = call(frame.diff, each.backward, [*residuals, *slots])
        for i, ct in zip(each.gives, found, strict=True):
            if i is not None:
                v = op.operands[i]
                total[i] = added(total[i], v, as_given(ct, v.type))
    return total


def _is_diagonal(op: Op, rule: Pullback) -> bool:
    """Return True if each cotangent that is asked for is a diagonal map of those given."""
    found = diagonal_cotangents(op, rule.backward, len(rule.takes))
    return all(flag for flag, i in zip(found, rule.gives, strict=True) if i is not None)


def _custom_jvp_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    if op.frame.linear:
        return _transposed_rule(op, cts)
    return _pull_back(op, cts, of_kind(op, _transposed_rules, cts))


def _transposed_rules(op: Op, cts: Tangents) -> list[Pullback]:
    count, slots = len(op.results), inexact_results(op)
    ct_mask = "0" * count + mask_of([cts[i] is not None for i in slots])
    types = [*[None] * count, *(op.wide[i] for i in slots)] if op.wide else []
    rules = []
    for mask, pair, ct_now in _linear_parts(op, ct_mask, types):
        takes = masked(slots, ct_now[count:])
        pairs = zip(in_mask(op, mask), pair.nonzero, strict=True)
        gives = [i if op.active[i] else None for i, nonzero in pairs if nonzero]
        functions = pair.forward, len(pair.kept), pair.backward
        rules.append(Pullback(*functions, takes, gives, pair.compared))
    return rules


def _linear_parts(
    op: Op, ct_mask: str, types: Sequence[Any]
) -> list[tuple[str, SplitFunction, str]]:
    """Split the linear part off each rule of a call; return the cotangents it receives, too.

    A rule for some of the operands has zeros for the tangents of the others. Where it is not seen
    that a term is zero for that reason, the rule for all of them shows what is linear.
    """
    rules = jvp_rules(op)
    try:
        return [_linear_part(op, *rule, ct_mask, types) for rule in rules]
    except NotLinearError:
        view = ops.view(op.operation)
        mask = view.own_mask
        whole = find_rule(op.frame.diff, view, "jvp", mask)
        if whole is None or rules[0][0] == mask or len(rules) > 1:
            raise
        return [_linear_part(op, mask, whole, ct_mask, types)]


def _linear_part(
    op: Op, mask: str, name: str, ct_mask: str, types: Sequence[Any]
) -> tuple[str, SplitFunction, str]:
    diff = op.frame.diff
    ct_now = _without_zeros(ct_mask, zero_results(diff, name))
    linear = "0" * len(op.operands) + "1" * mask.count("1")
    pair = split(diff, name, linear, ct_now, True, types=types)
    moving = sorted({*range(len(op.results))} - {*pair.kept})
    if moving:
        raise NotLinearError(
            f"cannot transpose the rule `@{name}`: result {moving[0]} of the function, as the rule "
            "gives it, depends on the tangents",
            where=user_line(op.operation.location),
            do="let the rule compute the function's results from its arguments alone",
        )
    return mask, pair, ct_now


def _without_zeros(ct_mask: str, zero: Sequence[bool]) -> str:
    return mask_of([m == "1" and not z for m, z in zip(ct_mask, zero, strict=True)])


def _has_transpose(op: Op, values: Tangents) -> bool:
    """Return True if a call has a transpose of its own whose cotangents are not all zero."""
    view = ops.view(op.operation)
    if view is None or view.NAME == ops.CustomVJPCall.NAME or not inexact_results(op):
        return False
    if view.NAME == ops.LinearCall.NAME:
        return not any(op.active[: view.num_residuals])
    found = _find_transpose(op)
    return found is not None and not all(zero_results(op.frame.diff, found[0]))


def _find_transpose(op: Op) -> tuple[str, list[int]] | None:
    """Return JAX's own transpose of a call, and the operands that it gives cotangents for.

    In a file, it may give cotangents for more operands: those that are linear together.
    """
    view, mask = ops.view(op.operation), inexact_mask(op)
    name = find_rule(op.frame.diff, view, "transpose", mask)
    if name is not None:
        return name, in_mask(op, mask)
    for name, covered in view.transposes():
        if len(covered) == len(mask) and within(mask, covered):
            return name, in_mask(op, covered)
    return None


def _transposed_rule(op: Op, cts: Tangents) -> list[Value | None]:
    """Transpose a custom_jvp_call by JAX's own transpose, else by that of the primal."""
    found = _find_transpose(op)
    if found is None:
        return vjp_of_function(op, decomposition(op), cts)
    name, linear = found
    check_no_term(op, linear, decomposition(op))
    fixed = [op.operand(i) for i in range(len(op.operands)) if i not in linear]
    given = [
        op.instantiate(ct, r) for ct, r in zip(cts, op.results, strict=True) if inexact(r.type)
    ]
    if types := cotangent_types(op):
        mask = mask_of(i in linear for i in ops.inexact_positions(op.operands))
        view, asked = ops.view(op.operation), Asked(mask)
        other = view.transpose_for(mask, types) or staged_for_types(op, "transpose", asked, types)
        name = other or name
        given = as_taken(op.frame.diff, name, given)
    result = call(op.frame.diff, name, [*fixed, *given])
    flags = [i in linear for i in range(len(op.operands))]
    return [ct if a else None for ct, a in zip(scatter(flags, result), op.active, strict=True)]


# -------------------------------------------------------------------------- custom_vjp_call


def _custom_vjp_jvp(op: Op, tangents: Tangents) -> list[Value | None]:
    """Call fwd, then a linear_call of the transpose of bwd, whose transpose is bwd itself."""
    rule = of_kind(op, _transposed_vjp_rule, tangents)
    if isinstance(rule, Refused):
        return [rule if inexact(r.type) else None for r in op.results]
    if rule is None:
        return _custom_jvp_jvp(op, tangents)
    results = call(op.frame.diff, rule.forward, op.operands)
    residuals = results[rule.kept :]
    linear = ops.call(
        ops.LinearCall,
        rule.transpose,
        [*residuals, *(tangents[i] for i in rule.takes)],
        [op.results[i].type for i in rule.gives],
        num_residuals=len(residuals),
        transpose=rule.backward,
    )
    op.frame.replace(op, results[: rule.kept])
    total: list[Value | None] = [None] * rule.kept
    for i, t in zip(rule.gives, linear.results, strict=True):
        total[i] = t
    return total


@dataclass(frozen=True)
class TransposedPullback:
    """A custom_vjp rule in forward mode; the fields are those of `Pullback`, but reversed.

    transpose: (residuals…, tangents of `takes`…) → (tangents of `gives`…).
    """

    forward: str
    kept: int
    transpose: str
    backward: str
    takes: list[int]
    gives: list[int]


def _transposed_vjp_rule(op: Op, tangents: Tangents) -> TransposedPullback | Refused | None:
    """Transpose the backward rule of a call; return None if the call has a jvp rule as well."""
    diff, gives = op.frame.diff, inexact_results(op)
    rule_mask(op)  # raises where the function closes over what is differentiated
    if _has_jvp_rule(op):
        return None
    try:
        fwd, bwd, mask = _rule_for_used_results(op)
    except Exception as error:  # the user's rule may raise anything
        return Refused(error)
    covered = in_mask(op, mask)
    bwd = _with_results(diff, bwd, mask_of([tangents[i] is not None for i in covered]))
    takes = [i for i in covered if tangents[i] is not None]
    try:
        forward = _forward_of_backward(diff, op.operation, bwd, takes)
    except (NotLinearError, MissingRuleError) as error:
        return Refused(error)
    return TransposedPullback(fwd, len(op.results), forward, bwd, takes, gives)


def _rule_for_used_results(op: Op) -> tuple[str, str, str]:
    """Return what `vjp_rule` does for all results, or where there is none, for those with uses."""
    unused = mask_of(not list(op.results[i].uses) for i in inexact_results(op))
    try:
        return vjp_rule(op)
    except (MissingRuleError, RuleResultError):
        if "1" not in unused or "0" not in unused:
            raise
        return vjp_rule(op, unused)


def _residuals(op: Op, fwd: str) -> int:
    """Return how many residuals a fwd rule returns, after the results."""
    return len(terminator(op.frame.diff.block(fwd)).operands) - len(op.results)


def _with_results(diff: Differentiation, name: str, mask: str) -> str:
    """Return a copy of @name that returns only the results in the mask."""

    def derive() -> str:
        copy = diff.clone_function(name, f"{name}.{mask}")
        keep_results(diff.function(copy), [i for i, m in enumerate(mask) if m == "1"])
        return copy

    return name if "0" not in mask else diff.cached(("results", name, mask), derive)


def forward_map(
    module: ir.Module, rules: Any, operation: Any, bwd: str, mask: str, given: str
) -> str:
    """Transpose a backward rule of a custom_vjp_call in those of its results that are `given`.

    Args:
      module: gets the transposed function.
      rules: those that are not in the module yet.
      mask: the operands that the rule gives cotangents of.

    Returns:
      the name of a function (residuals…, tangents of the given operands…) → (tangents of inexact
      results…).
    """
    takes = masked(masked(ops.inexact_positions(operation.operands), mask), given)
    with _jax.working_in(module), Differentiation(module, rules) as diff:
        return _forward_of_backward(diff, operation, _with_results(diff, bwd, given), takes)


def _forward_of_backward(
    diff: Differentiation, operation: Any, bwd: str, takes: Sequence[int]
) -> str:
    """Transpose a backward rule that gives cotangents of some operands of a call.

    An error in it names the rule and the line of the call.
    """
    results = [r.type for r in operation.results if inexact(r.type)]
    residuals = len(diff.block(bwd).arguments) - len(results)
    rounded = with_result_types(diff, bwd, [operation.operands[i].type for i in takes])
    try:
        linear_mask = "0" * residuals + "1" * len(results)
        forward = transpose(diff, rounded, linear_mask, "1" * len(takes))
    except LeakedValueError:
        raise
    except (NotLinearError, MissingRuleError) as error:
        line = user_line(operation.location)
        rule = f"`@{rounded}`, the backward rule of the call" + (f" at {line}" * bool(line))
        error.where = f"{error.where}, in {rule}" if error.where else rule
        error.do = go_forward(ops.view(operation))
        raise
    return with_result_types(diff, forward, results)


def _custom_vjp_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    if op.frame.linear:
        return _transposed_by_rule(op, cts)
    op.frame.diff.has_two_rules |= _has_jvp_rule(op)
    rules = of_kind(op, _vjp_rules, cts)
    if all(ct is None for ct in cts) and not any(i is not None for i in rules[0].gives):
        return [None] * len(op.operands)
    return _pull_back(op, cts, rules)


def _transposed_by_rule(op: Op, cts: Tangents) -> list[Value | None]:
    """Transpose a custom_vjp call that is applied to a tangent, by its backward rule.

    Raises:
      NotLinearError: the rule uses a residual that depends on the tangent.
    """
    diff, (rule,) = op.frame.diff, of_kind(op, _vjp_rules, cts)
    forward, backward = diff.block(rule.forward), diff.block(rule.backward)
    active = itertools.compress(forward.arguments, op.active)
    depends = dependents(active, forward, diff.functions)
    residuals = list(terminator(forward).operands)[rule.kept :]
    taken = (a for v, a in zip(residuals, backward.arguments) if v in depends)
    depends = dependents(taken, backward, diff.functions)
    for ct, i in zip(terminator(backward).operands, rule.gives, strict=True):
        if i is not None and ct in depends:
            raise NotLinearError(
                f"cannot transpose `{op.name}` of `{decomposition(op)}`: its backward rule uses a "
                "residual that depends on what it is linear in, such as the tangent of a jvp rule",
                where=user_line(op.operation.location),
                do="let the rule use the cotangent and values that are not differentiated alone; "
                "or apply pb.linear_call, which names a linear map and its transpose",
            )
    operands = [
        build.zeros(v.type) if active else op.operand(i)
        for i, (v, active) in enumerate(zip(op.operands, op.active, strict=True))
    ]
    values = call(diff, rule.forward, operands)[rule.kept :]
    given = [op.instantiate(cts[i], op.results[i]) for i in rule.takes]
    found = call(diff, rule.backward, [*values, *as_taken(diff, rule.backward, given)])
    total: list[Value | None] = [None] * len(op.operands)
    for i, ct in zip(rule.gives, found, strict=True):
        if i is not None:
            total[i] = as_given(ct, op.operands[i].type)
    return total


def _vjp_rules(op: Op, cts: Tangents) -> list[Pullback]:
    diff, takes = op.frame.diff, inexact_results(op)
    absent = mask_of([cts[i] is None for i in takes])
    fwd, bwd, mask = vjp_rule(op, absent)
    bwd = given_zeros(diff, bwd, "0" * _residuals(op, fwd) + absent)
    pairs = zip(in_mask(op, mask), zero_results(diff, bwd), strict=True)
    gives = [i if op.active[i] and not zero else None for i, zero in pairs]
    asks = diff.found_in(diff.function(bwd), asks_for_equality) is not None
    compared = range(_residuals(op, fwd)) if asks else ()
    return [Pullback(fwd, len(op.results), bwd, takes, gives, compared)]


# ------------------------------------------------------------------------------- their rules


Pullbacks = Callable[[Op, Tangents], list[Pullback]]


def _activity(op: Op, own: Callable[[Op, Tangents], list[bool]]) -> Sequence[bool]:
    """Return the active results: by the rules of a call, but in a linear map by its function."""
    if op.frame.linear:
        return _activity_of_map(op)
    with contextlib.suppress(MissingRuleError):
        return of_kind(op, own)
    return _inexact(op)


def _reached(op: Op, results: Sequence[bool], pullbacks: Pullbacks) -> Sequence[bool]:
    """Return the operands for which the backward functions of a call give a cotangent."""
    if not op.frame.linear:
        cts: Any = [True if has else None for has in results]
        with contextlib.suppress(MissingRuleError, NotLinearError):
            rules = of_kind(op, pullbacks, cts)
            given = {i for each in rules for i in each.gives}
            return [i in given for i in range(len(op.operands))]
    return op.active


def _are_diagonal(op: Op, cts: Tangents, pullbacks: Pullbacks) -> bool:
    if op.frame.linear:
        return False
    return all(_is_diagonal(op, each) for each in of_kind(op, pullbacks, cts))


def _lets_nothing_pass(op: Op, tangents: Tangents) -> bool:
    """Return True if no tangent passes: no operand is active, or every rule returns zero."""
    key = ops.view(op.operation).rule_key
    return "1" not in rule_mask(op) or (key is not None and op.frame.diff.rules.stops(key))


@rule(ops.CustomJVPCall.NAME, linear=jointly, family="control", hands_on=True)
class CustomJVPCallRule:
    """Forward mode calls the jvp rule; reverse mode its linear part, transposed."""

    @staticmethod
    def activity(op: Op) -> Sequence[bool]:
        return _activity(op, jvp_activity)

    @staticmethod
    def reached(op: Op, results: Sequence[bool]) -> Sequence[bool]:
        return _reached(op, results, _transposed_rules)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        if of_kind(op, _lets_nothing_pass):
            return [None] * len(op.results)
        return _custom_jvp_jvp(op, tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return _custom_jvp_vjp(op, cts)

    @staticmethod
    def diagonal(op: Op, cts: Tangents) -> bool:
        return _are_diagonal(op, cts, _transposed_rules)


@rule(ops.CustomVJPCall.NAME, linear=jointly, family="control", hands_on=True)
class CustomVJPCallRule:
    """Reverse mode calls fwd and bwd; forward mode fwd, and the transpose of bwd."""

    @staticmethod
    def activity(op: Op) -> Sequence[bool]:
        return _activity(op, vjp_activity)

    @staticmethod
    def reached(op: Op, results: Sequence[bool]) -> Sequence[bool]:
        return _reached(op, results, _vjp_rules)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        if of_kind(op, _lets_nothing_pass):
            return [None] * len(op.results)
        return _custom_vjp_jvp(op, tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return _custom_vjp_vjp(op, cts)

    @staticmethod
    def diagonal(op: Op, cts: Tangents) -> bool:
        return _are_diagonal(op, cts, _vjp_rules)


@rule(ops.LinearCall.NAME, linear=jointly, family="control", hands_on=True)
class LinearCallRule:
    """A linear map is its own derivative; its transpose is the user's, else a derived one."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        return _activity_of_map(op, shows_all=False) if op.frame.linear else _inexact(op)

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> Sequence[Value | None]:
        return linear_call_jvp(op, tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> Sequence[Value | None]:
        return linear_call_vjp(op, cts)

    @staticmethod
    def diagonal(op: Op, cts: Tangents) -> bool:
        return linear_call_is_diagonal(op, cts)


@rule(remat.SAVED, linear=jointly, family="control", hands_on=True)
class SavedRule:
    """Tangents and cotangents pass without a mark: a checkpoint saves primal values only."""

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        return list(tangents)

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return list(cts)

    @staticmethod
    def diagonal(op: Op, cts: Tangents) -> bool:
        return True


# --------------------------------------------------------------------------------- batches


@batch("stablehlo.composite")
def _batch(op: MappedOp) -> Value | Sequence[Value] | None:
    """Batch a composite: its decomposition, and its rules if it is a derivative op.

    All results of a derivative op are batched, as its rules expect. Of another composite, only
    those that its decomposition batches; it becomes a func.call, because a tool that knows its name
    would take the batch for one item.
    """
    name = _own_name(op)
    own, is_ours = BATCHES.get(name), name.startswith(ops.PREFIX)
    if own not in (None, MappedOp.again):
        return own(op)
    if own is None and name in RULES and not is_ours:
        raise MissingRuleError(
            f"no batching rule for the composite `{name}`, which has a derivative rule of its own",
            where=user_line(op.operation.location),
            do="register one: docs/extending.md#batches",
        )
    if own is None and not is_ours:
        callee, types = called_again(op, "decomposition")
        return list(build.emit(CALL, types, op.values, {"callee": build.symbol(callee)}).results)
    changes, wanted = {}, None
    if (view := ops.view(op.operation)) is not None:
        changes["composite_attributes"] = _batch_rules(op, view)
        wanted = [True] * len(op.results)
    return call_again(op, "decomposition", wanted, **changes)


batch_alike(remat.SAVED)


def _batch_rules(op: MappedOp, view: Any) -> Any:
    """Return the attributes of a derivative op with its rules replaced by batched ones."""
    batching = op.frame.batching
    signature = BatchSignature.of(view.operands, view.results, op.batched)
    own = view.own_mask
    if view.NAME == ops.LinearCall.NAME:
        own = behind(signature.inexact, view.num_residuals)
    found: dict[str, Any] = {}
    known = view.symbols
    for name in known:
        parsed = ops.RuleName.parse(name)
        kind, mask = parsed.kind, parsed.mask
        if kind == "fwd":
            continue
        forward = str(parsed._replace(kind="fwd", types=()))
        names = [forward, name] if kind == "bwd" else [name]
        symbols = [known[each] for each in names]
        kind = "vjp" if kind == "bwd" else kind
        functions = signature.functions(batching, kind, Asked(mask or own), symbols)
        found |= zip(names, map(build.symbol, functions), strict=True)
    if view.rule_key is not None:
        key = batching.diff.rules.batched(view.rule_key, tuple(op.batched), op.size)
        found[ops.RULE] = build.string(key)
    return ir.DictAttr.get({**view.attributes, **found}, op.operation.context)
