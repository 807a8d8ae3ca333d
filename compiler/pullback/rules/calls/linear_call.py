"""Differentiate linear_call: its jvp, and its transpose, by the functions that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.autodiff.checks import is_unknown, missing_map
from pullback.autodiff.forward import Refused, unrefused
from pullback.autodiff.functions import SplitFunction, split
from pullback.autodiff.registry import Op, Tangents
from pullback.autodiff.reverse import check_no_term
from pullback.autodiff.state import Differentiation, call
from pullback.errors import MissingRuleError, NotDifferentiableError, NotLinearError
from pullback.ir import build, ops
from pullback.ir.build import Value, add, inexact
from pullback.ir.locations import user_line
from pullback.ir.masks import Asked, mask_of
from pullback.ir.regions import terminator
from pullback.rules.calls.func_call import before, diagonal_cotangents, jvp_call, present, scatter


def missing_rule_of(view: Any, kind: str, which: str = "") -> MissingRuleError:
    """Return the error of a call without such a rule, in JAX or up to the order of the file."""
    names = "fwd = @…, bwd = @…" if kind == "vjp" else f"{kind} = @…"
    return MissingRuleError(
        f"no {kind} rule for `{view.decomposition}`{which}",
        where=user_line(view.op.location),
        do=f"write `{names}` into composite_attributes, where the call is written by hand; "
        "save with a higher order=, if the program is from a file that has derivatives up to "
        "some order (`pullback info` tells); otherwise JAX has no derivative here either: wrap "
        "this step in jax.custom_jvp",
    )


def holds_exact_rules(view: Any) -> bool:
    """Return True if a call names all rules that there are, and each is for exactly its mask."""
    return view.rule_key is None and view.sees_zeros and bool(view.symbols)


def missing_exact_rule(view: Any, kind: str, asked: Asked) -> MissingRuleError:
    """Return the error of a call whose rules in the file are for exactly other operands."""
    operands = [str(i) for i, m in enumerate(asked.operands) if m == "1"]
    which = f"tangents of inexact operands {', '.join(operands)} alone"
    if "0" in asked.results:
        results = [str(i) for i, m in enumerate(asked.results) if m == "1"]
        which = f"{which}, and cotangents of results {', '.join(results) or 'none'}"
    return MissingRuleError(
        f"the file has no {kind} rule of `{view.decomposition}` for {which}; the rule sees "
        "which are zero (symbolic_zeros), or is for no result that all items of a jax.vmap share: "
        "another one may say something else",
        where=user_line(view.op.location),
        do="save the derivative instead of the function, where it is traced: "
        "program.grad(…).save(…)",
    )


def check_not_refused(view: Any, kind: str, masks: Sequence[str]) -> None:
    """Raise the recorded text of the first rule that raised for one of these masks."""
    said = next(filter(None, (view.refusal(kind, mask) for mask in masks)), None)
    if said is not None:
        raise NotDifferentiableError(
            f"the {kind} rule of `{view.decomposition}` raises: {said}",
            where=user_line(view.op.location),
            do="differentiate by arguments that do not reach this step, or stop the gradient "
            "before it (jax.lax.stop_gradient)",
        )


def cotangent_types(op: Op) -> tuple[str, ...]:
    """Return the element types of an op's cotangents; () if all are those of its results."""
    if not op.wide:
        return ()
    pairs = zip(op.wide, op.results, strict=True)
    types = [wide or v.type for wide, v in pairs if inexact(v.type)]
    return tuple(str(build.info(type).element) for type in types)


def staged_for_types(op: Op, kind: str, asked: Asked, types: tuple[str, ...]) -> Any:
    """Stage a rule for cotangents of other types; return None if the rule does not take them.

    There JAX raises, and the rule for the types of the results runs.
    """
    view, diff = ops.view(op.operation), op.frame.diff
    if view.rule_key is None:
        return None
    try:
        return diff.stage(view.rule_key, kind, asked._replace(types=types))
    except Exception:  # the user's rule may raise anything; so does the other one, if it is wrong
        return None


def linear_transpose(op: Op) -> str:
    """Return the transpose of a linear_call's map: the user's, else a derived one."""
    view, diff, types = ops.view(op.operation), op.frame.diff, cotangent_types(op)
    flags = [i >= view.num_residuals for i, v in enumerate(op.operands) if inexact(v.type)]
    asked = Asked(mask_of(flags))
    if types:
        found = view.transpose_for(types) or staged_for_types(op, "transpose", asked, types)
        if found is not None:
            return found
    if view.transpose is not None:
        return view.transpose
    check_not_refused(view, "transpose", ["1"])
    if view.rule_key is None:
        raise missing_rule_of(view, "transpose")
    return diff.stage(view.rule_key, "transpose", asked)


def as_taken(diff: Differentiation, name: str, cts: Sequence[Value]) -> list[Value]:
    """Convert cotangents to the types of the function's last arguments, which receive them."""
    arguments = list(diff.block(name).arguments)[-len(cts) :] if cts else []
    return [build.converted(ct, v.type) for ct, v in zip(cts, arguments, strict=True)]


def linear_call_jvp(op: Op, tangents: Tangents) -> list[Any]:
    """Emit l(r, dv) + (dl/dr)(r, v) dr."""
    view, diff = ops.view(op.operation), op.frame.diff
    count = view.num_residuals
    if any(op.active[:count]) and is_unknown(view):
        return [Refused(missing_map(view))] * len(op.results)
    total: list[Any] = [None] * len(op.results)
    if any(op.active[count:]):
        given = [build.instantiate(t, v) for t, v in zip(tangents, op.operands, strict=True)][
            count:
        ]
        total = list(build.clone(op.operation, [*op.operands[:count], *given]).results)
    if any(op.active[:count]):
        mask = mask_of(op.active[:count]) + "0" * (len(op.operands) - count)
        _, found = jvp_call(diff, view.decomposition, mask, op.operands, tangents[:count])
        total = [add(a, b) for a, b in zip(total, unrefused(found), strict=True)]
    return total


def linear_call_vjp(op: Op, cts: Tangents) -> list[Value | None]:
    """Emit the transposed linear_call for linear operands, and the map's vjp for residuals."""
    view = ops.view(op.operation)
    count = view.num_residuals
    found: list[Value | None] = [None] * len(op.operands)
    if any(op.active[count:]):
        if op.frame.linear:
            check_no_term(op, range(count, len(op.operands)), view.decomposition)
        found[count:] = _linear_operand_cts(op, cts, count)
    if any(op.active[:count]):
        if op.frame.linear:
            raise NotLinearError(
                f"cannot transpose: `linear_call` of `{view.decomposition}` is not linear in its "
                "residuals",
                where=user_line(op.operation.location),
                do="pass what it is linear in behind the residuals",
            )
        found[:count] = _residual_cts(op, cts, count)
    return [ct if a else None for ct, a in zip(found, op.active, strict=True)]


def linear_call_is_diagonal(op: Op, cts: Tangents) -> bool:
    """Return True if each cotangent is a diagonal map of those given."""
    count, found = ops.view(op.operation).num_residuals, []
    if any(op.active[count:]):
        found += diagonal_cotangents(op, linear_transpose(op), len(op.results))
    if any(op.active[:count]):
        backward = _split_by_residuals(op, cts, count).backward
        found += diagonal_cotangents(op, backward, len(present(cts)))
    return all(found)


def _linear_operand_cts(op: Op, cts: Tangents, count: int) -> list[Value | None]:
    """Emit the transposed linear_call; a func.call if the map is unknown."""
    view = ops.view(op.operation)
    residuals = [op.operand(i) for i in range(count)]
    diff, name = op.frame.diff, linear_transpose(op)
    given = [op.instantiate(ct, r) for ct, r in zip(cts, op.results, strict=True)]
    given = as_taken(diff, name, given)
    if is_unknown(view):
        return call(diff, name, [*residuals, *given])
    transposed = ops.call(
        ops.LinearCall,
        name,
        [*residuals, *given],
        [v.type for v in terminator(diff.block(name)).operands],
        num_residuals=count,
        transpose=view.decomposition,
    )
    return list(transposed.results)


def _residual_cts(op: Op, cts: Tangents, count: int) -> list[Value | None]:
    diff, pair = op.frame.diff, _split_by_residuals(op, cts, count)
    with before(op):
        results = call(diff, pair.forward, op.operands)
    residuals = op.frame.residuals(results[len(pair.kept) :], pair.compared)
    found = call(diff, pair.backward, [*residuals, *present(cts)])
    return scatter(op.active[:count], scatter(pair.nonzero, found))


def _split_by_residuals(op: Op, cts: Tangents, count: int) -> SplitFunction:
    view = ops.view(op.operation)
    if is_unknown(view):
        raise missing_map(view)
    mask = mask_of(op.active[:count]) + "0" * (len(op.operands) - count)
    ct_mask = mask_of([ct is not None for ct in cts])
    return split(op.frame.diff, view.decomposition, mask, ct_mask, types=op.wide)
