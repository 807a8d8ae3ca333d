"""Errors of a sweep: an op on active values has no rule, or a rule returns the wrong things."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from pullback._jax import ir
from pullback.autodiff.registry import NONDIFFERENTIABLE, RULES, InPlace, Op, Rule
from pullback.errors import MissingRuleError, RuleResultError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.locations import user_line
from pullback.ir.ops import CustomVJPCall, DerivativeCall, LinearCall, composite_name
from pullback.ir.regions import TERMINATORS, captures


def check_known(operation: Any, name: str, active: Container[Value]) -> None:
    """Raise MissingRuleError if an active value flows into an op that has no rule."""
    if name in NONDIFFERENTIABLE or name in TERMINATORS:
        return
    everything = [*operation.operands, *captures(operation)]
    if any(v in active for v in everything) and not _reads_steps(operation, name):
        raise missing_rule(operation, name)


def lacks_rule(operation: Any) -> bool:
    """Return True for an op that has no rule, and a derivative that need not be zero."""
    name = operation.name
    known = name in RULES or name in NONDIFFERENTIABLE or _reads_steps(operation, name)
    return not known and any(build.inexact(v.type) for v in operation.operands)


_SHIFTS = ("stablehlo.shift_right_arithmetic", "stablehlo.shift_right_logical")
_DIGITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def _reads_steps(operation: Any, name: str) -> bool:
    """Return True if an op reads only the sign and exponent of floats, as integers.

    These are piecewise constant, so their derivative is zero.
    """
    if name != "stablehlo.bitcast_convert":
        return False
    digits = _DIGITS.get(str(build.info(operation.operands[0].type).element))
    if digits is None or build.info(operation.results[0].type).kind != "i":
        return False
    users = [(use.operand_number, use.owner.operation) for use in operation.results[0].uses]
    return all(
        not n and each.name in _SHIFTS and (build.one_number(each.operands[1]) or 0) >= digits
        for n, each in users
    )


FROM_OUTSIDE = " on a value from outside of its body"


def check_body(operation: Any, rule: Rule, active: Container[Value]) -> None:
    """Raise MissingRuleError if a body captures an active value and the rule ignores regions."""
    if rule.regions or not len(operation.regions):
        return
    if any(v in active for v in captures(operation)):
        raise missing_rule(operation, rule.name, FROM_OUTSIDE)


def is_custom_vjp(operation: Any) -> bool:
    return composite_name(operation) == CustomVJPCall.NAME


def may_run_a_rule(op: Op) -> bool:
    """Return True if an op of control flow calls a `custom_vjp` rule.

    The rule runs even if all cotangents that it is given are absent: see `pending.Absent`.
    """
    if op.rule.family != "control":
        return False
    return op.frame.diff.found_in(op.operation, is_custom_vjp) is not None


_OF_PROGRAMS = frozenset({"chlo", "func", "sdy", "stablehlo"})


def missing_rule(operation: Any, name: str, why: str = "") -> MissingRuleError:
    do = "wrap this step in jax.custom_jvp or jax.custom_vjp"
    if operation.name.partition(".")[0] not in _OF_PROGRAMS:
        do = "lower it to StableHLO, whose ops have rules"
    return MissingRuleError(
        f"no derivative rule for `{name}`{why}",
        where=user_line(operation.location),
        do=f"{do}, or register a rule: docs/extending.md#rules",
    )


def check_count(op: Op, found: Any, expected: int, what: str) -> None:
    if not isinstance(found, list | tuple):
        raise RuleResultError(
            f"the rule for `{op.name}` in {op.rule.module} returned no list of {what}s, but "
            f"{type(found).__name__}",
            where=user_line(op.operation.location),
            do=f"return a list, with one {what} per position, None where it is zero",
        )
    if len(found) != expected:
        raise RuleResultError(
            f"the rule for `{op.name}` in {op.rule.module} returned {len(found)} {what}s "
            f"instead of {expected}",
            where=user_line(op.operation.location),
            do="return one entry per position, None where it is zero",
        )


def check_cotangents(op: Op, found: Any) -> None:
    """Raise RuleResultError if these are not cotangents of the op's operands."""
    check_count(op, found, len(op.operands), "cotangent")
    for v, ct in zip(op.operands, found, strict=True):
        if ct is not None and not isinstance(ct, InPlace):
            check_type(op, ct, v.type, "cotangent")


def check_type(op: Op, found: Any, expected: Any, what: str) -> None:
    if not isinstance(found, ir.Value):
        raise RuleResultError(
            f"the rule for `{op.name}` in {op.rule.module} returned {found!r} for a {what}",
            where=user_line(op.operation.location),
            do="return values of the IR, which pullback.ir.build makes; None for zero",
        )
    if found.type != expected:
        raise RuleResultError(
            f"the rule for `{op.name}` in {op.rule.module} returned a {what} of the wrong type\n"
            f"  expected: {expected}\n  found:    {found.type}",
            where=user_line(op.operation.location),
            do="give each tangent and cotangent the type of its primal value",
        )


def go_forward(view: DerivativeCall) -> str:
    """Return what to do where the backward rule of a call cannot be transposed."""
    return (
        "take reverse mode, which keeps every rule: pb.jacrev in the place of pb.jacfwd, and for "
        "second derivatives reverse over reverse, pb.grad(lambda x: jnp.vdot(pb.grad(f)(x), v)) or "
        "pb.jacrev(pb.grad(f)); or give the function a rule for forward mode beside that for "
        "reverse mode, f.defjvp(…) of f = pb.custom_vjp(…); or differentiate the code of this "
        f'function alone, with through={{"{function_name(view)}": "function"}} in pb.jvp, '
        "pb.jacfwd or pb.linearize; or make the backward rule linear in the cotangents, as by "
        "jax.lax.custom_linear_solve in the place of an iterative solver"
    )


_NUMBERED = re.compile(r"(_forward)?(\.batched|_\d+)*")


def is_named(view: DerivativeCall, name: str) -> bool:
    """Return True if a call is of a user's function of this name, which may be numbered."""
    symbol = view.decomposition
    return symbol.startswith(name) and _NUMBERED.fullmatch(symbol[len(name) :]) is not None


def function_name(view: DerivativeCall) -> str:
    """Return the name of the user's function that is called, without what makes it unique."""
    return re.sub(rf"{_NUMBERED.pattern}$", "", view.decomposition)


def is_unknown(call: DerivativeCall) -> bool:
    """Return True if a call computes NaN for a linear map of which only the transpose is known."""
    return isinstance(call, LinearCall) and call.transpose_only is not None


def missing_map(view: Any) -> MissingRuleError:
    """Return the error where forward mode needs a map that is known by its transpose only."""
    return MissingRuleError(
        f"no jvp rule for a custom_vjp function: {view.transpose_only}",
        where=user_line(view.op.location),
        do=go_forward(view),
    )
