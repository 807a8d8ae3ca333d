"""Trace one derivative rule of one call, through JAX's public transformations.

Binding the single equation under `jax.jvp`, `jax.vjp` or `jax.linear_transpose` lets JAX handle
symbolic zeros, float0, cotangents that are None, and trees. A user's rules that are to know none of
what is zero are taken as JAX has traced them, which saves to trace the equations again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from pullback._jax import (
    derivatives,
    hijax,
    jaxprs,
    named_axes,
    source_info,
    tracing,
    user_rules,
)
from pullback.errors import RuleResultError
from pullback.frontend.closures import lift
from pullback.frontend.closures.same_rule import Identities
from pullback.frontend.rewrites.pallas_kernels import as_loops
from pullback.frontend.rewrites.reduce_as_fold import as_fold
from pullback.frontend.rules import batched_rules
from pullback.frontend.rules.kept_call import USERS, Batch, KeptCall
from pullback.ir import locations
from pullback.program import argument_leaves
from pullback.program.memo import has_hash
from pullback_runtime.ir._dtypes import dtype_named

OTHERWISE: dict[str, Callable[[Any], Callable[..., list[Any]]]] = {
    "reduce": as_fold,
    "pallas_call": as_loops,
}
"""Primitives that are differentiated as another function that computes the same."""


def _function_of(rule: KeptCall) -> Any:
    """Return the call as a function; operations of a user's rule have their lines in the rule."""
    if rule.primitive in OTHERWISE:
        return OTHERWISE[rule.primitive](rule.call)
    user_rules.forget_runs(rule.call)
    return tracing.equations_to_function(rule.call, own_lines=rule.primitive in USERS)


def _traced(function: Callable[..., Any], *arguments: Any) -> Any:
    """Trace a function, and pass to the calls in it what their rules close over.

    That has been done in the jaxpr of a user's own `jvp` or `fwd`.
    """
    return lift.close(tracing.traced(function, *arguments))


def jvp_rule(rule: KeptCall, chosen: list[int], *_: Any) -> tuple[Any, ...]:
    """Trace `(args, tangents of the chosen args) -> (outs, tangents of inexact outs)`."""
    call = _function_of(rule)
    results, outs = rule.call.out_avals, rule.inexact_results
    pushed = _by_linearize if hijax.goes_by_linearize(rule.call.eqns[0]) else jax.jvp

    def jvp(args: Any, tangents: Any) -> Any:
        primals = [args[i] for i in chosen]
        results, derivatives = pushed(_restricted(call, args, chosen), primals, list(tangents))
        return results, [derivatives[i] for i in outs]

    args = tracing.structs(rule.call.in_avals)
    tangents = [args[i] for i in chosen]
    closed = _own_jvp(rule, chosen) or _traced(jvp, args, tangents)
    if (axes := batched_rules.axes_of_results(rule, closed)) is not None:
        moves = [each.to_function for each in axes]
        closed = batched_rules.moved(closed, [*moves, *(moves[i] for i in outs)])
    _check_results(rule, "jvp", closed, [*results, *(results[i] for i in outs)])
    if rule.primitive in USERS:
        return (closed,)
    given = [False] * len(args) + [True] * len(tangents)
    moving = jaxprs.depending(closed, given)[len(results) :]

    def linear(args: Any, tangents: Any) -> Any:
        """Compute a primitive's rule, with zeros for what does not depend on its tangents.

        JAX's rule may compute such a zero, as the solution of a system whose right side is zero.
        """
        results, derivatives = jvp(args, tangents)
        pairs = zip(derivatives, moving, strict=True)
        return results, [t if moves else jax.numpy.zeros_like(t) for t, moves in pairs]

    return (closed if all(moving) else _traced(linear, args, tangents),)


def _by_linearize(function: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Compute `jax.jvp` of a call that has a rule for `jax.linearize` only."""
    results, linear = jax.linearize(function, *primals)
    return results, linear(*tangents)


def _own_jvp(rule: KeptCall, chosen: list[int]) -> Any:
    """Return the jaxpr of a user's `jvp` rule, which JAX traces anyway, if that is enough.

    Return None if some operand has no tangent.
    """
    if rule.primitive != "custom_jvp_call" or len(chosen) < len(rule.call.in_avals):
        return None
    closed, zeros = user_rules.traced_jvp(rule.call.eqns[0])
    count, outs = len(zeros), jaxprs.outputs_of(closed)
    given = iter(range(count, len(outs)))
    places = [None if is_zero else next(given) for is_zero in zeros]
    tangents = [(places[i], rule.call.out_avals[i]) for i in rule.inexact_results]
    moving = [outs[place] for place, _ in tangents if place is not None]
    if len(moving) == len(tangents):
        return jaxprs.with_outputs(closed, [*outs[:count], *moving])

    def filled(*values: Any) -> Any:
        found = tracing.apply(closed, values)
        zeros = derivatives.zeros_of
        return found[:count], [zeros(t) if i is None else found[i] for i, t in tangents]

    return tracing.traced(filled, *tracing.structs(closed.in_avals))


def vjp_rule(
    rule: KeptCall, chosen: list[int], given: list[int] | None = None, types: Sequence[str] = ()
) -> tuple[Any, ...]:
    """Trace `args -> (outs, residuals)`, `(residuals, cotangents) -> cotangents of the chosen`.

    `given` are the outs that have cotangents, if not all inexact ones; the user's rule sees which.
    `types` are the element types of the cotangents, if they are not those of the outs.
    """
    outs, inexact = rule.call.out_avals, rule.inexact_results
    own = _own_vjp(rule, chosen) if given is None else None
    forward, pull = own or _vjp(rule, chosen, given or inexact, types)
    axes = batched_rules.axes_of_results(rule, forward)
    batched_rules.check_results_of_items(rule, axes)
    batches = batched_rules.shared_results(rule, given or inexact)
    batched_rules.check_shared_arguments(rule, batches)
    if axes is not None:
        forward = batched_rules.moved(forward, [each.to_function for each in axes])
    _check_results(rule, "vjp", forward, outs)

    def backward(residuals: Any, cotangents: Any) -> Any:
        cts = dict(zip(inexact, cotangents, strict=True))
        if axes is not None:
            cts = {i: axes[i].to_rule(ct) for i, ct in cts.items()}
        found = pull(residuals, cts)
        wanted = [rule.call.in_avals[i] for i in chosen]
        return [_part(rule, *each) for each in zip(wanted, _typed(found, wanted), strict=True)]

    residuals = tracing.structs(forward.out_avals[len(outs) :])
    cotangents = _of_types(tracing.cotangents(outs[i] for i in inexact), types)
    backward_of_all = _traced(backward, residuals, cotangents)
    if batches:
        needed = jaxprs.needed_inputs(backward_of_all)[len(residuals) :]
        batched_rules.check_shared_results(rule, batches, dict(zip(inexact, needed, strict=True)))
    return forward, backward_of_all


Pull = Callable[[Sequence[Any], dict[int, Any]], list[Any]]
"""Maps residuals and the cotangents of results, by position, to those of chosen operands."""


def _vjp(
    rule: KeptCall, chosen: list[int], given: list[int], types: Sequence[str]
) -> tuple[Any, Pull]:
    """Trace `args -> (outs, residuals)` by `jax.vjp`; return also the pullback from `given`."""
    call = _function_of(rule)
    others = dict(zip(rule.inexact_results, types, strict=True)) if types else {}
    structure = []

    def forward(args: Any) -> Any:
        restricted = _restricted(call, args, chosen)

        def chosen_results(*values: Any) -> Any:
            results = restricted(*values)
            return [_with_cotangent(results[i], others.get(i)) for i in given], results

        _, pull, results = jax.vjp(chosen_results, *[args[i] for i in chosen], has_aux=True)
        residuals, tree = jax.tree.flatten(pull)
        structure.append(tree)
        return results, residuals

    def pull(residuals: Any, cotangents: Any) -> Any:
        pull = jax.tree.unflatten(structure[0], residuals)
        return pull([_whole(rule, rule.call.out_avals[i], cotangents[i]) for i in given])

    return _traced(forward, tracing.structs(rule.call.in_avals)), pull


def _with_cotangent(value: Any, element: str | None) -> Any:
    """Return a value whose cotangent may have another element type, which `jax.vjp` rejects.

    The value has a rule that forwards the cotangent as it is, which JAX lets it do.
    """
    if element is None or value.dtype == dtype_named(element):
        return value
    function = jax.custom_vjp(lambda x: jax.lax.convert_element_type(x, dtype_named(element)))
    function.defvjp(lambda x: (function(x), None), lambda _, ct: (ct,))
    return function(value)


def _own_vjp(rule: KeptCall, chosen: list[int]) -> tuple[Any, Pull] | None:
    """Do what `_vjp` does with the user's own `fwd`, which JAX traces anyway, and `bwd`.

    Return None if these see symbolic zeros, or if cotangents have parts on other devices.
    """
    if rule.primitive != "custom_vjp_call" or rule.sees_zeros or rule.checked_axes:
        return None
    (equation,) = rule.call.eqns
    user_rules.forget_runs(rule.call)
    perturbed = [i in chosen for i in range(len(rule.call.in_avals))]
    forward, name = user_rules.traced_fwd(equation, perturbed, dict(rule.literals))

    def pull(residuals: Any, cotangents: Any) -> Any:
        cts = [
            cotangents[i] if i in cotangents else derivatives.zeros_of(aval)
            for i, aval in enumerate(rule.call.out_avals)
        ]
        found = user_rules.run_bwd(equation, name(residuals), cts)
        pairs = [(found[i], rule.call.in_avals[i]) for i in chosen]
        return [derivatives.zeros_of(aval) if derivatives.is_zero(ct) else ct for ct, aval in pairs]

    return forward, pull


def _whole(rule: KeptCall, aval: Any, ct: Any) -> Any:
    """Return the cotangent that a user's rule receives: in a checked `shard_map`, the whole.

    In the IR, the cotangent of a value that is equal on all devices is the sum of parts, one per
    device.
    """
    axes = named_axes.equal_along(aval, rule.checked_axes)
    return jax.lax.psum(jax.lax.pcast(ct, axes, to="varying"), axes) if axes else ct


def _part(rule: KeptCall, aval: Any, ct: Any) -> Any:
    """Return one device's part of a cotangent that is equal on all of them."""
    axes = named_axes.equal_along(aval, rule.checked_axes)
    terms = named_axes.of_terms(jax.typeof(ct)) if axes else ()
    if not terms:
        return ct / jax.lax.axis_size(axes) if axes else ct
    share = jax.numpy.asarray(1 / jax.lax.axis_size(axes), ct.dtype)
    return ct * jax.lax.pcast(share, terms, to="reduced")  # JAX divides no sums of terms


def _typed(cotangents: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """Convert cotangents of a backward rule to the types of their arguments that can hold them.

    JAX lets a rule return another type than its argument's, and passes it on.
    """
    return [
        converted(ct, aval.dtype) if _holds(aval.dtype, jax.typeof(ct).dtype) else ct
        for aval, ct in zip(avals, cotangents, strict=True)
    ]


def hands_on(rule: KeptCall, kind: str, chosen: list[int], functions: Sequence[Any]) -> bool:
    """Return True if a rule gives cotangents of other types than its operands have."""
    if kind == "jvp":
        return False
    wanted = [rule.call.in_avals[i].dtype for i in chosen]
    return [aval.dtype for aval in functions[-1].out_avals] != wanted


def _holds(dtype: Any, other: Any) -> bool:
    """Return True if a cotangent of another type loses nothing in this one, or is none at all."""
    if not jax.numpy.issubdtype(other, jax.numpy.inexact):
        return True
    if jax.numpy.issubdtype(other, jax.numpy.complexfloating) and not jax.numpy.issubdtype(
        dtype, jax.numpy.complexfloating
    ):
        return False
    mine, theirs = jax.numpy.finfo(dtype), jax.numpy.finfo(other)
    return (
        mine.nmant >= theirs.nmant and mine.maxexp >= theirs.maxexp and mine.minexp <= theirs.minexp
    )


def converted(value: Any, dtype: Any) -> Any:
    """Convert an array or a Python number to this type, by its real part if the type is real."""
    found = jax.typeof(value).dtype
    if found == dtype:
        return value
    if found.kind == "c" and dtype.kind != "c":
        value = jax.numpy.real(value)
    return jax.lax.convert_element_type(value, dtype)


def _of_types(cotangents: Sequence[Any], types: Sequence[str]) -> list[Any]:
    """Return abstract cotangents, with other element types if `types` has any."""
    dtypes = [dtype_named(name) for name in types] or [ct.dtype for ct in cotangents]
    return [ct.update(dtype=dtype) for ct, dtype in zip(cotangents, dtypes, strict=True)]


def transpose_rule(
    rule: KeptCall, chosen: list[int], given: None = None, types: Sequence[str] = ()
) -> tuple[Any, ...]:
    """Trace `(other args, cotangents of inexact outs) -> cotangents of the chosen args`.

    `types` are as for `vjp_rule`.
    """
    if types:
        return (_transposed_for(rule, chosen, types),)
    if rule.op == "pullback.linear_call" or any(jaxprs.bodies_of(rule.call.eqns[0])):
        return (_transposed(rule, chosen, in_parts=True),)
    return (_transposed(rule, chosen),)


def _transposed(rule: KeptCall, chosen: list[int], in_parts: bool = False) -> Any:
    """Trace the transpose of a call by JAX.

    Args:
      in_parts: it takes whole cotangents, of which each device has a part; see `_whole`.
    """
    call = _function_of(rule)
    avals = tracing.structs(rule.call.in_avals)
    kept = [i for i in range(len(avals)) if i not in chosen]

    def transpose(args: Any, cotangents: Any) -> Any:
        full = [None] * len(avals)
        for i, value in zip(kept, args, strict=True):
            full[i] = value
        restricted = _restricted(call, full, chosen)

        def linear(*values: Any) -> Any:
            results = restricted(*values)
            return [results[i] for i in outs]

        cts = cotangents
        if in_parts:
            cts = [_whole(rule, *each) for each in zip(given, cotangents, strict=True)]
        if taken is None:
            found = jax.linear_transpose(linear, *[avals[i] for i in chosen])(cts)
        else:
            found = _run_transpose(rule, kept, args, list(map(converted, cts, taken)))
            found = [found[i] for i in chosen]
        wanted = [rule.call.in_avals[i] for i in chosen]
        found = _typed(found, wanted)
        pairs = zip(wanted, found, strict=True)
        return [_part(rule, *each) for each in pairs] if in_parts else found

    def alone(args: Any, cotangents: Any) -> Any:
        _run_transpose(rule, kept, args, cotangents)

    outs = rule.inexact_results
    given = [rule.call.out_avals[i] for i in outs]
    types = [avals[i] for i in kept], tracing.cotangents(given)
    taken = _taken_otherwise(rule)
    if rule.primitive.endswith(jaxprs.OF_A_LIBRARY):  # whose types may take long to find
        tracing.traced(alone, *types)
    return _traced(transpose, *types)


def _taken_otherwise(rule: KeptCall) -> list[Any] | None:
    """Return the dtypes that a linear call's transpose takes; None if they are its results'."""
    if rule.primitive != "linear_call":
        return None
    taken = user_rules.linear_cotangents(rule.call.eqns[0])
    return None if taken == [aval.dtype for aval in rule.call.out_avals] else taken


def _run_transpose(rule: KeptCall, kept: list[int], args: Any, cotangents: Any) -> Sequence[Any]:
    """Run JAX's transpose rule of the primitive; `args` are the operands at `kept`."""
    operands, cts = [None] * len(rule.call.in_avals), [None] * len(rule.call.out_avals)
    for places, values, full in (
        (kept, args, operands),
        (rule.inexact_results, cotangents, cts),
    ):
        for i, value in zip(places, values, strict=True):
            full[i] = value
    return derivatives.run_transpose(rule.call.eqns[0], operands, cts)


def _transposed_for(rule: KeptCall, chosen: list[int], types: Sequence[str]) -> Any:
    """Trace JAX's transpose rule of the primitive for cotangents of other element types.

    Raises:
      TypeError: it takes those of the results only.
    """
    call, (equation,) = rule.call, rule.call.eqns
    kept = [i for i in range(len(call.in_avals)) if i not in chosen]

    def transpose(args: Any, cotangents: Any) -> Any:
        found = (
            user_rules.run_linear_transpose(equation, args, cotangents)
            if rule.primitive == "linear_call"
            else _run_transpose(rule, kept, args, cotangents)
        )
        pairs = [(found[i], call.in_avals[i]) for i in chosen]
        cts = [derivatives.zeros_of(aval) if derivatives.is_zero(ct) else ct for ct, aval in pairs]
        return _typed(cts, [aval for _, aval in pairs])

    args = tracing.structs(call.in_avals[i] for i in kept)
    cotangents = tracing.cotangents(call.out_avals[i] for i in rule.inexact_results)
    found = _traced(transpose, args, _of_types(cotangents, types))
    if not jaxprs.bodies_fit(found):
        raise TypeError(f"the transpose of `{rule.key}` calls functions of other types")
    return found


def _restricted(call: Any, args: Any, chosen: list[int]) -> Any:
    """Return the call as a function of the chosen arguments, with the others held fixed."""

    def restricted(*values: Any) -> Any:
        full = list(args)
        for i, value in zip(chosen, values, strict=True):
            full[i] = value
        return call(*full)

    return restricted


def forward_of_backward(rule: KeptCall) -> Any:
    """Return the linear map whose transpose is a call's rule, which alone defines the call."""
    count = rule.num_residuals or 0
    linear = list(range(count, len(rule.call.in_avals)))
    backward = _transposed(rule, linear)
    pull = tracing.equations_to_function(backward)
    avals = tracing.structs(rule.call.in_avals)
    cotangents = tracing.structs(backward.in_avals[count:])

    def forward(residuals: Any, tangents: Any) -> Any:
        (results,) = jax.linear_transpose(lambda cts: pull(*residuals, *cts), cotangents)(tangents)
        return results

    return tracing.traced(forward, avals[:count], avals[count:])


def unknown_map(rule: KeptCall) -> Any:
    """Return a stand-in for a linear map that is not known: NaN, linear in the same operands."""
    count = rule.num_residuals or 0
    avals = tracing.structs(rule.call.in_avals)
    results = [rule.call.out_avals[i] for i in rule.inexact_results]

    def unknown(_: Any, tangents: Any) -> Any:
        nan = sum(jax.numpy.sum(jax.numpy.real(t)) for t in tangents) * jax.numpy.nan
        return [jax.numpy.full(aval.shape, nan, aval.dtype) for aval in results]

    return tracing.traced(unknown, avals[:count], avals[count:])


STAGES = {"jvp": jvp_rule, "vjp": vjp_rule, "transpose": transpose_rule}


def traced(
    rule: KeptCall,
    kind: str,
    chosen: list[int],
    given: list[int] | None = None,
    types: Sequence[str] = (),
) -> tuple[Any, ...]:
    """Trace the functions of a rule; `given` and `types` are as for `vjp_rule`.

    Those of a primitive depend on its parameters and types only. They are traced once for all
    programs, and placed in each where its own call is.
    """
    stage, key = STAGES[kind], None if types else _key(rule, kind, chosen)
    if key is None:
        return stage(rule, chosen, given, types)
    found = tracing.known().get(key)
    if found is None:
        found = stage(rule, chosen, given)
        if not all(map(_stands_alone, found)):
            return found
        tracing.remember(key, found)
    return tuple(_placed(closed, rule.call.eqns[0]) for closed in found)


def _key(rule: KeptCall, kind: str, chosen: list[int]) -> Any:
    """Return what the functions of a primitive's rule depend on; None if that may be anything."""
    (equation,) = rule.call.eqns
    if user_rules.rule_functions(equation) is not None or any(jaxprs.bodies_of(equation)):
        return None
    primitive, params = equation.primitive, tuple(sorted(equation.params.items()))
    known_by = Identities().parameters(equation.params)  # equal numbers may be different ones
    types = tuple(rule.call.in_avals)
    rules = derivatives.rules_of(primitive)
    key = kind, primitive, rules, params, known_by, equation.ctx, types, tuple(chosen)
    return key if has_hash(key) else None


def _stands_alone(closed: Any) -> bool:
    """Return True if only the equations of a function itself say where it was traced.

    Jitted functions in it say so, too; but those JAX shares between programs as they are.
    """
    others = (e for e in closed.eqns if e.primitive.name != jaxprs.JITTED)
    bodies = any(any(jaxprs.bodies_of(e)) for e in others)
    return not bodies and not closed.effects and not jaxprs.constants_of(closed)


def batched(
    rule: KeptCall, kind: str, chosen: list[int], functions: Sequence[Any], batch: Batch
) -> list[Any]:
    """Let JAX batch the functions of a rule, which have batching rules in them.

    Batched operands and all results lead with the batch. The cotangent of an operand that all items
    share is the sum of those of the items.
    """
    moved = [batch.flags[i] for i in chosen]
    if kind == "jvp":
        takes = [[*batch.flags, *moved]]
    elif kind == "vjp":
        takes = [list(batch.flags), [True] * len(functions[-1].in_avals)]
    else:
        others = [flag for i, flag in enumerate(batch.flags) if i not in chosen]
        takes = [[*others, *[True] * len(rule.inexact_results)]]
    found = [_for_items(*each, batch.size) for each in zip(functions, takes, strict=True)]
    return found if kind == "jvp" else [*found[:-1], _summed(found[-1], moved)]


def _for_items(closed: Any, flags: Sequence[bool], size: int) -> Any:
    axes = tuple(0 if flag else None for flag in flags)
    items = zip(tracing.structs(closed.in_avals), axes, strict=True)
    types = [tracing.batch_type(*item, size) for item in items]
    function = tracing.equations_to_function(closed)
    return tracing.traced(jax.vmap(function, axes, 0, axis_size=size), *types)


def _summed(closed: Any, flags: Sequence[bool]) -> Any:
    """Sum the results that are not flagged over the items."""

    def summed(*args: Any) -> list[Any]:
        pairs = zip(tracing.apply(closed, args), flags, strict=True)
        return [v if flag else jax.numpy.sum(v, 0) for v, flag in pairs]

    return tracing.traced(summed, *tracing.structs(closed.in_avals))


def _placed(closed: Any, place: Any) -> Any:
    """Return the function as if it had been traced where this equation was."""
    return jaxprs.replaced(closed, eqns=source_info.placed(closed.eqns, place))


def _check_results(rule: KeptCall, kind: str, closed: Any, wanted: Sequence[Any]) -> None:
    """Raise RuleResultError if the results of a rule have other shapes than its function's.

    JAX batches a function and its rules each for itself, and keeps what does not depend on the
    batch without one: so a result that does not, but whose tangent does, has a rule that misfits.
    """
    for expected, found in zip(wanted, closed.out_avals, strict=False):
        if getattr(expected, "shape", None) != getattr(found, "shape", None):
            raise RuleResultError(
                f"the {kind} rule of `{rule.key}` gives {argument_leaves.spell(found)} where its "
                f"function gives {argument_leaves.spell(expected)}: jax.vmap gave all items one "
                "result, and each item a derivative of its own",
                where=rule.places,
                do="map by pb.vmap(f), or map a program, jax.vmap(pb.jit(f)): each item then has "
                "its own result, too",
            )


def says_missing(rule: KeptCall, kind: str, error: Exception) -> bool:
    """Return whether an error says that there is no rule.

    JAX's own primitives say so in many ways. Whether one is linear in its operands is found out by
    trying: the transpose is given an `UndefinedPrimal` for them. Errors in a user's rule are the
    user's to see as they are.
    """
    is_of_trial = isinstance(error, AssertionError) or "UndefinedPrimal" in str(error)
    if locations.is_raised_by_user(error) and not is_of_trial:
        return False
    if rule.primitive == "linear_call" or (rule.primitive in USERS and kind != "transpose"):
        return isinstance(error, NotImplementedError) and locations.of_error(error) is None
    return True
