"""The keep step: every equation that carries a derivative rule becomes one of our composites.

JAX's lowering drops derivative rules, and for many primitives it also changes what the derivative
of the emitted code is. So a primitive may be lowered as it is only if it is on the list `NATIVE`;
every other one becomes a rule-carrying call, by JAX's own rule. Types do not change, so nothing is
traced again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any

from pullback._jax import (
    derivatives,
    equations_as_calls,
    hijax,
    holders,
    jaxprs,
    linear_maps,
    named_axes,
    ordering,
    primitives,
    references,
    remat,
    source_info,
    tracing,
    user_rules,
)
from pullback._jax.reads import parameter
from pullback._jax.tangent_types import check_tangents, is_inexact
from pullback.errors import PullbackError
from pullback.frontend import link, nested_programs
from pullback.frontend.native import BATCHED_BY_JAX, is_native
from pullback.frontend.rewrites import simpler
from pullback.frontend.rewrites.negative_powers import is_negative_power, with_a_rule
from pullback.frontend.rules.call_table import CallTable
from pullback.frontend.rules.kept_call import KeptCall
from pullback.ir import locations
from pullback_runtime.files._symbolic import is_symbolic

CHECK = "check"
"""A `checkify.debug_check`, which does nothing where `checkify` does not look."""

ON_EVERY_DEVICE = frozenset(
    "psum_invariant pvary all_gather_invariant unreduced_psum unreduced_reduce_scatter "
    "all_gather_reduced preduced vary_unreduced_cast vary_unreduced_cast_p reduced_vary_cast "
    "reduced_vary_cast_p".split()
)
"""Collectives of JAX's checked `shard_map`, whose own rules count a value that is equal on all
devices once. In the IR its cotangents are parts, one per device, and `rules/collectives.py`
differentiates what these lower to accordingly."""

MARKED = frozenset({"compute_on", "xla_metadata_call", "program_order"})
"""Calls that say where, or how, a function is to run; JAX's rules mark its derivatives, too."""

CHECKPOINT = "remat2"


def has_batching_rule(jaxpr: Any) -> bool:
    """Return True if a jaxpr calls a function with a user's batching rule, at any depth."""
    return any(jaxprs.name_of(each) == BATCHED_BY_JAX for each in jaxprs.equations_in(jaxpr))


class Keeper:
    """A memoized rewriter: a jaxpr that many equations share stays shared.

    Attributes:
      rules: the table that rule-carrying calls are entered into.
    """

    def __init__(self, rules: CallTable):
        self.rules = rules
        self._done: dict[Any, tuple[Any, Any]] = {}

    def keep(self, jaxpr: Any) -> Any:
        """Return the jaxpr with rule-carrying calls for equations with rules, at any depth."""
        key = id(jaxpr), self.rules.policy, self.rules.settings
        found = self._done.get(key)
        if found is None:
            kept = self._rewrite(jaxpr)
            found = self._done[key] = (jaxpr, kept)
        return found[1]

    def _rewrite(self, jaxpr: Any) -> Any:
        jaxpr = without_mutable_arrays(jaxpr)  # some calls do not tell what they make inside
        old = jaxpr.eqns
        new = [self._equation(each, jaxpr) for each in old]
        if not all(map(operator.is_, old, new)):
            jaxpr = jaxprs.replaced(jaxpr, eqns=new, is_high=False)
        return ordering.unordered(jaxpr)

    def _equation(self, equation: Any, jaxpr: Any) -> Any:
        if not simpler.may_be(equation) and self._is_native(equation, jaxpr):
            return equation
        with self.rules.as_called(equation):
            equation = simpler.in_simpler_terms(equation, jaxpr)
            return equation if self._is_native(equation, jaxpr) else self._kept(equation, jaxpr)

    def _is_native(self, equation: Any, jaxpr: Any) -> bool:
        surroundings = self.rules.environment.platforms, self.rules.dimensions
        return is_native(equation, jaxprs.opened(jaxpr).debug_info, surroundings)

    def _kept(self, equation: Any, jaxpr: Any) -> Any:
        debug_info = jaxprs.opened(jaxpr).debug_info
        if is_negative_power(equation):
            equation = with_a_rule(equation, debug_info)
        outer = self.rules.place
        self.rules.place = locations.of_equation(equation) or outer
        self.rules.tracebacks.append(source_info.traceback_of(equation))
        try:
            _check_axes(equation, self.rules.place)
            if equation.effects:
                if references.are_used(equation):
                    raise mutable_array(self.rules.place)
                only_debugs = remat.may_repeat(equation.effects)
                self._note(only_debugs=self.rules.environment.only_debugs and only_debugs)
            check_tangents([*equation.invars, *equation.outvars], self.rules.place)
            return ordering.in_text(self._other_equation(equation, debug_info), debug_info)
        finally:
            self.rules.place = outer
            self.rules.tracebacks.pop()

    def _note(self, **found: Any) -> None:
        """Update the environment of the programs whose code or rules are being kept."""
        self.rules.environment = dataclasses.replace(self.rules.environment, **found)

    def _use_mesh(self, mesh: Any) -> None:
        self.rules.environment = self.rules.environment.on_mesh(mesh)

    def _other_equation(self, equation: Any, debug_info: Any) -> Any:
        name = jaxprs.name_of(equation)
        if name == "sharding_constraint":
            self._use_mesh(getattr(parameter(equation, "sharding"), "mesh", None))
        if name == BATCHED_BY_JAX:
            self._note(has_batching_rules=True)
        if name == CHECK:
            self._note(has_lost_checks=True)
        return _WAYS.get(name, Keeper._primitive)(self, equation, debug_info)

    def _inside(self, equation: Any, _: Any = None) -> Any:
        """Keep the jaxprs among an equation's parameters, but for those of kernels."""
        return jaxprs.with_bodies(
            equation, lambda _, body: body if references.are_taken(body) else self.keep(body)
        )

    def _manual(self, equation: Any, _: Any) -> Any:
        self._use_mesh(parameter(equation, "mesh"))
        with self.rules.inside(equation):
            return self._inside(equation)

    def _program(self, equation: Any, _: Any) -> Any:
        return primitives.as_module_call(equation, nested_programs.merger(equation, self.rules))

    def _exported(self, equation: Any, debug_info: Any) -> Any:
        if any(map(is_symbolic, parameter(equation, "exported").in_avals)):
            raise _symbolic_call(self.rules.place)
        return self._primitive(equation, debug_info)

    def _custom(self, equation: Any, debug_info: Any) -> Any:
        """Keep a call of a function with rules, or of a linear map with a transpose."""
        op = f"pullback.{jaxprs.name_of(equation)}"
        decomposition = self.keep(jaxprs.close(holders.called_function(equation)))
        return self._composite(
            equation, self.rules.register(op, equation, debug_info, decomposition)
        )

    def _linear_map(self, equation: Any, debug_info: Any) -> Any:
        """Keep a linear map of `program.as_jax()`, of which maybe only the transpose is known.

        Raises: what stands for a map of which nothing is known.
        """
        parts = linear_maps.parts_of(equation)
        if parts.unknown is not None and parts.linear:
            return self._backward_only(equation, debug_info)
        if parts.unknown is not None:
            raise parts.unknown.error
        if not parts.linear:
            return self._primitive(equation, debug_info)
        body = self.keep(jaxprs.close(parts.jaxpr))
        rule = self.rules.register("pullback.linear_call", equation, debug_info, body)
        return self._composite(equation, rule)

    def _high(self, equation: Any, debug_info: Any) -> Any:
        """Keep a call in JAX's newer encoding (hijax), whose rules are methods of an object."""
        if hijax.kind_of(equation) == "RematTraced":
            return self._checkpoint(equation, debug_info)
        body = self.keep(hijax.expand(equation))
        backward = "vjp" in hijax.rules_of(equation)
        op = "pullback.custom_vjp_call" if backward else "pullback.custom_jvp_call"
        return self._composite(equation, self.rules.register(op, equation, debug_info, body))

    def _backward_only(self, equation: Any, debug_info: Any) -> Any:
        """Keep the tangent map of a `custom_vjp` function; JAX knows only its transpose."""
        rule = self.rules.register_backward(equation, debug_info)
        outs = [var for var in equation.outvars if is_inexact(var.aval)]
        call = self._composite(equation.replace(outvars=outs), rule)
        if len(outs) == len(equation.outvars):
            return call
        return _with_zeros_of_integers(equation, jaxprs.equation_alone(call, debug_info), rule.key)

    def _primitive(self, equation: Any, debug_info: Any) -> Any:
        """Keep a primitive with JAX's own rule, unless no tangent flows through it."""
        if not _carries_derivative(equation) or _lacks_jvp(equation):
            return self._inside(equation)
        inside = ordering.in_text(self._inside(equation), debug_info)
        decomposition = jaxprs.equation_alone(inside, debug_info)
        rule = self.rules.register("pullback.custom_jvp_call", equation, debug_info, decomposition)
        return self._composite(equation, rule)

    def _composite(self, equation: Any, rule: KeptCall) -> Any:
        return primitives.as_composite(
            equation,
            rule.op,
            jaxpr=rule.decomposition,
            key=rule.key,
            notes=rule.notes,
        )

    def _checkpoint(self, equation: Any, _: Any) -> Any:
        with self.rules.kept_by(remat.policy_of(equation)), refusing_memories():
            body = self.keep(remat.recomputed(equation))
        name = "checkpoint_" + link.identifier(source_info.function_name(body))
        return remat.as_checkpoint(equation, jaxpr=body, name=name)


_WAYS: dict[str, Callable[[Keeper, Any, Any], Any]] = {
    "call_module": Keeper._program,
    "call_exported": Keeper._exported,
    "shard_map": Keeper._manual,
    "custom_jvp_call": Keeper._custom,
    "custom_vjp_call": Keeper._custom,
    "linear_call": Keeper._custom,
    linear_maps.NAME: Keeper._linear_map,
    "call_hi_primitive": Keeper._high,
    CHECKPOINT: Keeper._checkpoint,
    **dict.fromkeys(user_rules.BACKWARD_ONLY, Keeper._backward_only),
    **dict.fromkeys(ON_EVERY_DEVICE | {remat.SAVED}, lambda keeper, equation, _: equation),
    **dict.fromkeys(holders.STRUCTURE - {"shard_map"}, Keeper._inside),
}
"""By primitive, the method that keeps its equations; `_primitive` keeps all others."""


@contextlib.contextmanager
def refusing_memories() -> Iterator[None]:
    """Raise PullbackError if a policy offloads to a memory that JAX has no space for."""
    try:
        yield
    except remat.UnknownMemoryError as error:
        raise PullbackError(
            f"the policy of a jax.checkpoint offloads from {error.source!r} to "
            f"{error.destination!r}; JAX moves values between 'device' and 'pinned_host' alone",
            where=locations.of_equation(error.equation),
            do="let the policy offload from 'device' to 'pinned_host'",
        ) from None


def without_mutable_arrays(closed: Any) -> Any:
    """Return the closed jaxpr with the mutable arrays that are made in it discharged to values."""
    try:
        return references.discharged(closed)
    except references.HandedTwiceError as error:
        raise PullbackError(
            f"`{error.equation.primitive}` takes one mutable array (jax.Ref) twice and writes to "
            "it, or is a while loop whose condition reads what its body writes, or writes",
            where=locations.of_equation(error.equation),
            do="hand it on once: let the body return what the condition needs, as a value",
        ) from None
    except references.NotDischargedError as error:
        place = locations.of_equation(error.equation)
        raise _core_map(place) if error.is_core_map else mutable_array(place) from None


def _core_map(place: str | None) -> PullbackError:
    return PullbackError(
        "cannot trace a `core_map`, a kernel that is handed mutable arrays (jax.Ref)",
        where=place,
        do="call the kernel by pl.kernel, which takes arrays and returns them",
    )


def mutable_array(place: str | None) -> PullbackError:
    """Return the error for a `jax.Ref` passed to a function, or to a call in it that has rules."""
    return PullbackError(
        "cannot trace a function that is handed a mutable array (jax.Ref)",
        where=place,
        do="make it in there, with jax.new_ref; or hand its value on instead, as in "
        "`x = x.at[i].set(v)`; or differentiate by JAX",
    )


def _check_axes(equation: Any, place: str | None) -> None:
    """Raise PullbackError if an equation works along the named axis of a vmap around the module."""
    if axes := named_axes.axes_of_vmaps(equation):
        names = ", ".join(map(repr, axes))
        raise PullbackError(
            f"cannot trace one item of a batch alone: `{equation.primitive}` works along {names}, "
            "the axis of a vmap around it",
            where=place,
            do="differentiate the batch, as in `pb.grad(lambda x: jax.vmap(f, …)(x).sum())`; or "
            "differentiate by JAX inside of the vmap",
        )


def _with_zeros_of_integers(equation: Any, of_floats: Any, name: str) -> Any:
    """Call a tangent map that has no integer results, and fill in zeros for these."""

    def call(*operands: Any) -> list[Any]:
        found = iter(tracing.apply(of_floats, operands))
        types = [var.aval for var in equation.outvars]
        return [next(found) if is_inexact(t) else derivatives.zeros_of(t) for t in types]

    return equations_as_calls.as_jitted(equation, call, name)


def _symbolic_call(place: str | None) -> PullbackError:
    return PullbackError(
        "a program with symbolic dimensions cannot be called inside of another one",
        where=place,
        do="differentiate it by its own methods (vjp, jvp, grad) or by jax.grad, jax.vjp and "
        "jax.jvp; or save program.with_shapes(…), which can be called anywhere",
    )


def shares_values(jaxpr: Any) -> bool:
    """Return True if argument-dependent values become equal on all devices, or are used as such.

    In the body of a checked `shard_map`, JAX counts the cotangent of a value that is equal on all
    devices once.
    """
    moving = {var for var in jaxprs.inputs_of(jaxpr) if is_inexact(var.aval)}
    return any(
        jaxprs.name_of(each) in ON_EVERY_DEVICE
        or any(map(shares_values, jaxprs.jaxprs_in(each.params.values())))
        for each in jaxprs.reached(jaxpr, moving)
    )


def _lacks_jvp(equation: Any) -> bool:
    """Return True if JAX can differentiate the wrapped call in reverse mode only.

    pullback supports both modes.
    """
    bodies = jaxprs.bodies_of(equation) if jaxprs.name_of(equation) in MARKED else ()
    inside = (each for _, body in bodies for each in jaxprs.equations_in(body))
    return any(
        (name := jaxprs.name_of(each)) in user_rules.BACKWARD_ONLY
        or (name == "call_hi_primitive" and hijax.lacks_jvp(each))
        for each in inside
    )


def _carries_derivative(equation: Any) -> bool:
    """Return True if a tangent could flow through the equation, judging by its types.

    A bitcast of a float counts as well: JAX's rule says that no tangent flows through it, which the
    op by itself does not say.
    """
    return any(is_inexact(atom.aval) for atom in equation.invars) and (
        jaxprs.name_of(equation) == "bitcast_convert_type"
        or any(is_inexact(var.aval) for var in equation.outvars)
    )
