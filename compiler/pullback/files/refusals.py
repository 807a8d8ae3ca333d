"""Reject the save of a program without a rule that one of its derivatives needs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.autodiff.reachable_calls import Meeting, have_rules, order_of
from pullback.errors import MissingRuleError, NotLinearError
from pullback.ir import locations
from pullback.ir.warn import warn_user

if TYPE_CHECKING:
    from pullback.program.program import Program


def refuse_refusals(
    program: Program,
    met: Sequence[Meeting],
    order: int | None,
    of_any_order: bool,
) -> None:
    """Raise MissingRuleError, with the rule's message, for the first needed rule that raises.

    If only derivatives of higher order need such a rule, and the file is for any order, warn.

    Static analysis overestimates which rules a derivative needs, since rules may return tangents
    that are zero. So the program is differentiated. If that succeeds, rules that raise count only
    for calls inside of other rules, and only from the second order on.
    """
    refused = [(each.order(rule), each, rule) for each in met for rule in each.call.refused]
    if refused and _is_differentiable(program):
        deep = [(each.in_rules, each, rule) for _, each, rule in refused]
        refused = [(max(order_of(rule, d), 2), each, rule) for d, each, rule in deep if d]
    refused = [each for each in refused if order is None or each[0] <= order]
    if not refused:
        return
    first = min(order for order, *_ in refused)
    sooner = f"save with order={first - 1}: derivatives up to that order do not ask for it; or "
    _, (call, *_), rule = refused[0]
    count = len({each.call.decomposition for _, each, _ in refused})
    others = f", and those of {count - 1} more" if count > 1 else ""
    said = f"the {rule} rule of `{call.decomposition}` raises{others}: {call.refused[rule]}"
    where = locations.user_line_of(call.op)
    if of_any_order and first > 1:
        warn_user(
            f"{said}, for the call at {where}; a derivative of order {first} or more may ask for "
            f"it, and one of the loaded program raises this then; save with order={first - 1} if "
            "nobody needs these, or with allow_refusals=True"
        )
        return
    do = (
        "save with allow_refusals=True (--allow-refusals in a shell): the file runs, and "
        "raises this where the derivative is asked for; or give the step a rule that does not "
        "raise"
    )
    raise MissingRuleError(said, where=where, do=sooner + do if first > 1 else do)


def _is_differentiable(program: Program) -> bool:
    """Return True if no rule raises for a first derivative with respect to all arguments.

    Forward mode through a backward rule that is not linear does not exist, saved or not.
    """
    try:
        program.vjp()
        with contextlib.suppress(NotLinearError):
            program.jvp()
    except Exception:  # of a user's rule, which may raise anything
        return False
    return True


def refuse_missing(program: Program, met: Sequence[Meeting], order: int | None) -> None:
    """Raise MissingRuleError if a derivative of the program needs a rule of a call without any.

    Most such calls are not needed by any derivative: they are for orders that JAX lacks, or feed a
    `stop_gradient`. So the program is differentiated to find out.
    """
    if have_rules(met, order):
        return
    try:
        program.vjp()
    except MissingRuleError as error:
        error.do = (
            f"{error.do}; or save with allow_refusals=True (--allow-refusals in a shell): the file "
            "runs, and has no derivative through this step"
        )
        raise
    except Exception:
        return  # no derivative for another reason, such as an active bitcast, or a rule that raises
