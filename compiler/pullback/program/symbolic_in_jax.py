"""Functions of leaves that JAX differentiates as our passes differentiate modules.

While dimensions are symbols our passes have no types to work with, and JAX has. Each stage of a
derivation takes a function of leaves to one, with operands and results in the places where the
pass of the same name has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pullback._jax import derivatives, jaxprs
from pullback._jax.tangent_types import is_inexact
from pullback._jax.user_rules import BACKWARD_ONLY
from pullback.errors import MissingRuleError, PullbackError
from pullback.passes.entry_edits import ReorderOperands, SelectResults
from pullback.passes.jvp import JVP
from pullback.passes.pipelines import Stage
from pullback.passes.vjp import VJP

Flat = Callable[..., Sequence[Any]]


def behind(flat: Flat, stages: Iterable[Stage]) -> Flat:
    """Return the function after the stages of a derivation; those that only tidy do nothing.

    Raises: PullbackError for an option that JAX's derivatives, which are taken here, do not have.
    """
    for stage in stages:
        if isinstance(stage, JVP) and stage.through != "rules":
            raise PullbackError(
                f"through={stage.through!r} is not for a program whose dimensions are symbols",
                do="trace the function with sizes, or take those of the program: "
                "program.with_shapes(…)",
            )
        if type(stage) in STAGES:
            flat = STAGES[type(stage)](flat, stage)
    return flat


def _pushed(flat: Flat, stage: JVP) -> Flat:
    def forward(push: Callable[..., Any], *values: Any) -> tuple[Any, ...]:
        wrt = stage.wrt or ()
        leaves, tangents = values[: len(values) - len(wrt)], values[len(values) - len(wrt) :]

        def moved(*primals: Any) -> Any:
            outs = flat(*_filled(leaves, wrt, primals))
            return list(filter(_moves, outs)), outs

        pushed, outs = push(moved, tuple(leaves[i] for i in wrt), tangents)
        return (*outs, *pushed)

    def chosen(*values: Any) -> tuple[Any, ...]:
        equations = jaxprs.equations_in(jax.make_jaxpr(partial(forward, _by_jvp))(*values))
        stopped = any(jaxprs.name_of(each) in BACKWARD_ONLY for each in equations)
        return forward(_by_transposing if stopped else _by_jvp, *values)

    return chosen


def _by_jvp(moved: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    _, pushed, outs = jax.jvp(moved, primals, tangents, has_aux=True)
    return pushed, outs


def _by_transposing(moved: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Compute forward mode through a custom_vjp, for which JAX has no rule, by transposing."""
    results, backward, outs = jax.vjp(moved, *primals, has_aux=True)
    (pushed,) = jax.linear_transpose(backward, results)(tangents)
    return pushed, outs


def _pulled(flat: Flat, stage: VJP) -> Flat:
    wrt, chosen = stage.wrt or (), stage.outs or ()

    def backward(*values: Any) -> tuple[Any, ...]:
        count = len(values) - (0 if stage.unit_cotangent else len(chosen))
        leaves, cotangents = values[:count], list(values[count:])

        def moved(*primals: Any) -> Any:
            outs = flat(*_filled(leaves, wrt, primals))
            return [outs[i] for i in chosen], outs

        results, pull, outs = jax.vjp(moved, *(leaves[i] for i in wrt), has_aux=True)
        if stage.unit_cotangent:
            cotangents = list(map(jnp.ones_like, results))
        return (*outs, *pull(cotangents))

    return backward


def _reordered(flat: Flat, stage: ReorderOperands) -> Flat:
    places = sorted(range(len(stage.order)), key=stage.order.__getitem__)
    return lambda *leaves: flat(*(leaves[i] for i in places))


def _selected(flat: Flat, stage: SelectResults) -> Flat:
    def selected(*leaves: Any) -> tuple[Any, ...]:
        outs = flat(*leaves)
        return tuple(outs[i] for i in stage.order)

    return selected


STAGES: dict[Any, Callable[[Flat, Any], Flat]] = {
    JVP: _pushed,
    VJP: _pulled,
    ReorderOperands: _reordered,
    SelectResults: _selected,
}


def differentiable(primal: Flat, backward: Flat) -> Flat:
    """Return a function whose reverse mode is another: `(leaves…, cotangents) -> cotangents`.

    Cotangents are those of floats among results and leaves, here and below.
    """

    @jax.custom_vjp
    def function(*leaves: Any) -> Any:
        return primal(*leaves)

    def bwd(leaves: Any, cotangents: Any) -> Any:
        moved = iter(backward(*leaves, *filter(_moves, cotangents)))
        return tuple(next(moved) if _moves(leaf) else None for leaf in leaves)

    function.defvjp(lambda *leaves: (primal(*leaves), leaves), bwd)
    return function


def differentiable_both_ways(
    primal: Flat, forward: Flat, backward: Flat, pushed: Sequence[int]
) -> Flat:
    """Add a forward mode to `differentiable`: `(leaves…, tangents) -> (results…, tangents)`.

    Args:
      pushed: the leaves whose tangents `forward` takes.
    """

    @jax.custom_jvp
    def of_floats(*leaves: Any) -> list[Any]:
        return list(filter(_moves, primal(*leaves)))

    def rule(leaves: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        outs = of_floats(*leaves)
        floats = [i for i, leaf in enumerate(leaves) if _moves(leaf)]
        moving = [i for i in floats if not derivatives.is_zero(tangents[i])]
        if not {*moving} <= {*pushed}:
            raise MissingRuleError(
                "the file of this program has no derivatives by keyword arguments",
                do="pass them by position where the program is traced, or save it again",
            )

        def push(leaves: Any, moved: Any) -> list[Any]:
            full = {i: jnp.zeros_like(leaves[i]) for i in pushed}
            results = forward(*leaves, *(full | dict(zip(moving, moved, strict=True))).values())
            return list(results[len(results) - len(outs) :])

        def pull(leaves: Any, cotangents: Any) -> list[Any]:
            pulled = dict(zip(floats, backward(*leaves, *cotangents), strict=True))
            return [pulled[i] for i in moving]

        moved = [tangents[i] for i in moving]
        return outs, jax.custom_derivatives.linear_call(push, pull, leaves, moved)

    of_floats.defjvp(rule, symbolic_zeros=True)

    def function(*leaves: Any) -> list[Any]:
        outs, moved = primal(*map(jax.lax.stop_gradient, leaves)), iter(of_floats(*leaves))
        return [next(moved) if _moves(out) else out for out in outs]

    return function


def _moves(value: Any) -> bool:
    """Return True if a value has tangents; JAX's tangents of the others have type float0."""
    return is_inexact(jax.typeof(value))


def _filled(leaves: Sequence[Any], positions: Sequence[int], moved: Sequence[Any]) -> list[Any]:
    chosen = dict(zip(positions, moved, strict=True))
    return [chosen.get(i, leaf) for i, leaf in enumerate(leaves)]
