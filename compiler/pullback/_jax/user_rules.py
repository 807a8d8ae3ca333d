"""Find the rules of a user's function inside the layers that JAX puts around them."""

from __future__ import annotations

import functools
import itertools
import re
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax._src import custom_derivatives as _custom_derivatives, linear_util as _linear_util
from jax._src.interpreters import batching as _batching

from pullback._jax import derivatives, hijax, holders, jaxprs, linear_maps, source_info, tracing
from pullback._jax.reflect import has_name, is_wrapped_function, variable


def rule_functions(equation: Any) -> tuple[Any, ...] | None:
    """Return what identifies the custom rules of an equation: rule functions and plain parameters.

    None for an equation without such rules.
    """
    name, params = jaxprs.name_of(equation), equation.params
    if name in _THUNKS:
        inside, bwd = rule_inside(equation), _without_const_handling(params.get("bwd"))
        return name, inside.rule, bwd, inside.closed_over, params["symbolic_zeros"]
    if name == "linear_call":
        return name, params["transpose_thunk"], params["num_callee_consts"], params["num_res"]
    if name == "call_hi_primitive":
        return name, params["_prim"]
    if name == "call_hi_primitive_linearized":
        return name, tuple(sorted(params.items()))
    if name == "custom_lin":
        zeros = tuple(params["in_zeros"]), params["symbolic_zeros"], params["num_res"]
        return name, _without_const_handling(params["bwd"]), zeros
    return None


def written(equation: Any) -> list[Any]:
    """Return the functions of a user's rules, without JAX's layers, as far as they are known."""
    name, params = jaxprs.name_of(equation), hijax.parameters_of(equation)
    if name == linear_maps.NAME:
        return [linear_maps.parts_of(equation).transpose.function]
    if name in _THUNKS:
        forward, backward = rule_inside(equation).rule, _without_const_handling(params.get("bwd"))
        rules = [forward, backward] if isinstance(backward, tuple) else [forward]
        rules = [rule[0] if isinstance(rule, tuple) else rule for rule in rules]
    else:
        names = ("transpose_thunk", "jvp", "fwd", "bwd")
        rules = [*params.get("rules", ()), *(params[name] for name in names if name in params)]
    return [getattr(rule, "f", rule) for rule in rules]


BACKWARD_ONLY = frozenset({"custom_lin", "call_hi_primitive_linearized"})
"""Tangent maps of `custom_vjp` functions: linear calls that JAX can only transpose."""


def wants_symbolic_zeros(closed: Any) -> bool:
    """Return True if the only equation of a closed jaxpr has rules that take symbolic zeros."""
    return bool(hijax.parameters_of(closed.eqns[0]).get("symbolic_zeros", False))


def num_residuals(equation: Any) -> int | None:
    """Return how many leading operands of a linear call are residuals; None for other calls."""
    name, params = jaxprs.name_of(equation), equation.params
    if name == "linear_call":
        return params["num_callee_consts"] + params["num_res"]
    if name == "custom_lin":
        return params["num_res"]
    if name == "call_hi_primitive_linearized":
        return params["residuals_tree"].num_leaves
    if name == linear_maps.NAME and linear_maps.parts_of(equation).linear:
        return linear_maps.parts_of(equation).linear[0]
    return None


def rule_name(equation: Any) -> str | None:
    """Return the name of the user's function that an equation with a custom rule calls."""
    if jaxprs.name_of(equation) == linear_maps.NAME:
        return linear_maps.parts_of(equation).name
    if (body := holders.called_function(equation)) is not None:
        name = source_info.function_name(body)
        return _custom_gradient_name(equation) if name == "wrapped_fun" else name
    if jaxprs.name_of(equation) == "custom_lin":
        return str(equation.params["bwd"].debug_info.func_name) + "_forward"
    if "_prim" in equation.params:
        prim = hijax.mapped(equation.params["_prim"])
        traced = prim.params.get("traced", prim)
        name = getattr(traced, "fun_name", None) or _snake_case(type(prim).__name__)
        name = _custom_gradient_name(equation) if name == "wrapped_fun" else name
        return name + "_forward" * (jaxprs.name_of(equation) in BACKWARD_ONLY)
    return None


def _custom_gradient_name(equation: Any) -> str:
    """Return the name of the function under a `custom_gradient`, which its forward rule holds."""
    if "_prim" in equation.params:
        forward = equation.params["_prim"].params.get("fwd")
    elif (thunk := equation.params.get("fwd_jaxpr_thunk")) is not None:
        forward = _unwrapped(thunk).rule
    else:
        return "wrapped_fun"
    function = variable(getattr(forward, "f", forward), "fun")
    return getattr(function, "__name__", "wrapped_fun")


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


_THUNKS = {"custom_jvp_call": "jvp_jaxpr_fun", "custom_vjp_call": "fwd_jaxpr_thunk"}
"""The parameter that holds the forward rule, by the primitive of a user's call."""


class RuleInside(NamedTuple):
    """The forward rule of a user's call, found inside the layers that JAX and we put around it.

    Attributes:
      rule: what identifies the rule.
      closed_over: how many leading operands the call's function closes over: JAX has no
        derivatives by these.
      known: the position among those operands of each tracer closed over, by `tracing.name_of`.
      closed: whether there is a `RuleOfOperands` around it.
      memories: the memo tables of the layers: results by arguments.
    """

    rule: Any
    closed_over: int = 0
    known: Mapping[Any, int] = {}
    closed: bool = False
    memories: tuple[dict[Any, Any], ...] = ()


class RuleOfOperands:
    """A closure-converted rule: the values it closes over are operands of its call.

    Attributes:
      rule: the rule that closes over tracers.
      added: types of the leading operands that closure conversion has added.
      closed_over, known: as of `RuleInside`.
      made: memo table: results by arguments.
      traced: the jaxprs of the rule as the user wrote it, from each run.
    """

    def __init__(self, rule: Any, added: Sequence[Any], closed_over: int, known: Mapping[Any, int]):
        self.rule = rule
        self.added = added
        self.closed_over = closed_over
        self.known = known
        self.made: dict[Any, Any] = {}
        self.traced: list[Any] = []

    def __call__(self, *args: Any) -> Any:
        """Run the rule."""
        raise NotImplementedError


def rule_inside(equation: Any) -> RuleInside:
    """Find the forward rule of a user's call; an empty `RuleInside` for other calls."""
    name, params = jaxprs.name_of(equation), equation.params
    if name not in _THUNKS:
        return _NO_RULE
    inside = _memoised(params[_THUNKS[name]])
    return _lifted(inside, params["num_consts"]) if params["num_consts"] else inside


def traced_rules(equation: Any) -> list[Any]:
    """Return the jaxprs of the rules of a call that have run, as the user wrote them."""
    functions = (getattr(value, "f", None) for value in equation.params.values())
    found = [each.traced for each in functions if isinstance(each, RuleOfOperands)]
    return [closed for traced in found for closed in traced]


def traced_jvp(equation: Any) -> tuple[Any, list[bool]]:
    """Trace a `jvp` rule for tangents of all operands; return its jaxpr and flags of zeros.

    The flags say which tangents of results are symbolic zeros. The results of the jaxpr are those
    of the function, then the other tangents.
    """
    thunk = equation.params["jvp_jaxpr_fun"]
    count = len(equation.invars) - equation.params["num_consts"]
    jaxpr, constants, zeros = thunk.call_wrapped(*[False] * count)
    return jaxprs.closed_with(jaxpr, constants), zeros


NamedResiduals = Callable[[Sequence[Any]], list[Any]]
"""Maps the residuals that a traced `fwd` rule returns to those that the `bwd` rule takes."""


def traced_fwd(
    equation: Any, perturbed: Sequence[bool], literals: Mapping[int, Any]
) -> tuple[Any, NamedResiduals]:
    """Trace a `fwd` rule; return its jaxpr, and a function from its residuals to those of `bwd`.

    The results of the jaxpr are those of the function, then the distinct residuals. Python numbers
    (sizes in shapes, and operands in `literals`) are no residuals; the returned function adds them.
    """
    params = equation.params
    jaxpr, constants = params["fwd_jaxpr_thunk"].call_wrapped(*perturbed)
    closed, (_, tree, forwarded) = jaxprs.closed_with(jaxpr, constants), params["out_trees"]()
    operands, outs = jaxprs.inputs_of(closed), jaxprs.outputs_of(closed)
    count = tree.num_leaves - sum(i is not None for i in forwarded)
    own = iter(outs[:count])
    known = {id(operands[i]): value for i, value in literals.items()}
    named = [next(own) if i is None else operands[i] for i in forwarded]
    known |= {id(v): v.val for v in named if isinstance(v, jaxprs.Literal)}
    residuals = {id(v): v for v in named if id(v) not in known}
    places = {each: place for place, each in enumerate(residuals)}
    closed = jaxprs.with_outputs(closed, [*outs[count:], *residuals.values()])

    def name(found: Sequence[Any]) -> list[Any]:
        return [known[id(v)] if id(v) in known else found[places[id(v)]] for v in named]

    return closed, name


def run_bwd(equation: Any, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Run a `bwd` rule, and return the cotangents of all operands; some may be symbolic zeros."""
    returned = equation.params["bwd"].call_wrapped(*residuals, *cotangents)
    return list(returned[0] if derivatives.has_logs(returned) else returned)


def linear_cotangents(equation: Any) -> list[Any]:
    """Return the dtypes of the cotangents that the transpose of a `linear_call` takes.

    They differ from those of the results if the call is itself the transpose of another one that
    returns cotangents of another type than its operand's.
    """
    closed, _ = equation.params["transpose_thunk"]()
    return [v.aval.dtype for v in jaxprs.inputs_of(closed)[-len(equation.outvars) :]]


def run_linear_transpose(
    equation: Any, residuals: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """Run the transpose of a `linear_call`; return the cotangents of all operands.

    That of a residual is None.

    Cotangents of other types than those of the results go through the equations that JAX has traced
    for the latter, as they do in JAX.
    """
    own = equation.params["num_callee_consts"]
    with equation.ctx.manager:
        closed, constants = equation.params["transpose_thunk"]()
        values = [*constants, *residuals[own:], *cotangents]
        found = tracing.apply(closed, values)
    return [*[None] * len(residuals), *found]


def forget_runs(closed: Any) -> None:
    """Clear the memo tables of the forward rule of the only call in a jaxpr, so that it runs again.

    A run stores the tree structures of results and residuals beside the rule. Those found there are
    of the last run, which may have been for other arguments, or have failed.
    """
    for memory in rule_inside(closed.eqns[0]).memories:
        memory.clear()


def _memoised(thunk: Any) -> RuleInside:
    """Return `_unwrapped(thunk)`, memoized on the thunk's function."""
    function = getattr(thunk, "f", thunk)
    if not isinstance(function, types.FunctionType):
        return _unwrapped(thunk)
    of, inside = vars(function).get(_INSIDE, _UNKNOWN)
    if of() is not function:  # but one that this is a wrapper of, perhaps
        inside = _unwrapped(thunk)
        if inside.rule is not thunk:  # then the function is JAX's own
            vars(function)[_INSIDE] = weakref.ref(function), inside
    return inside


_NO_RULE = RuleInside(None)

_INSIDE = "__pullback_rule_inside__"
"""The attribute of JAX's function around the rule that has the memo. A dictionary of all these
functions would keep them alive, as what is found may lead to the function again."""

_UNKNOWN = (lambda: None), _NO_RULE


def _lifted(inside: RuleInside, count: int) -> RuleInside:
    """Shift a rule's positions for `count` more leading operands, which the call closes over."""
    known = {name: count + position for name, position in inside.known.items()}
    return inside._replace(closed_over=count + inside.closed_over, known=known)


def _unwrapped(thunk: Any) -> RuleInside:
    """Find the user's rule inside the layers that JAX puts on it, and the constants that they lift.

    An equation holds a memoized function around the rule, new at each call. When JAX evaluates
    the equation again (inside another rule, say), it lifts the constants and adds a layer; so does
    dead code elimination, which changes nothing if all results are used. Layers are recognized by
    the names of the variables that they close over (`reads.VARIABLES`). Should JAX come to store
    rules in another way, the thunk's own identity is used, and the rule is staged once per use.
    """
    function = getattr(thunk, "f", thunk)
    if isinstance(function, RuleOfOperands):
        inside, known = _unwrapped(function.rule), function.known
        memories = function.made, *inside.memories
        return RuleInside(inside.rule, function.closed_over, known, True, memories)
    traced, memory = variable(function, "fn"), variable(function, "cells")
    if (dead := _before_dead_code(traced)) is not None:
        inside = _unwrapped(dead.rule)
        inside = inside._replace(rule=_for_used(inside.rule, dead.used))
    else:
        inside = _beneath(thunk, variable(traced, "jvp", "fwd"))
    return inside if memory is None else inside._replace(memories=(memory, *inside.memories))


def in_layer(function: Any) -> Any:
    """Return what a layer that JAX puts on a rule holds: the next layer, or the rule; or None."""
    return variable(function, "fn", "jvp", "fwd", "bwd", *_THUNKS.values())


def _beneath(thunk: Any, inner: Any) -> RuleInside:
    """Return the user's rule inside the function that a thunk traces, if that is known."""
    if inner is None:
        return RuleInside(thunk)
    before = variable(inner.f, *_THUNKS.values())
    if before is None:
        return RuleInside(inner)
    inside = _lifted(_unwrapped(before), variable(inner.f, "num_consts"))
    if inner.transforms:
        inside = inside._replace(rule=(inside.rule, inner.transforms, inner.params))
    return inside


def with_rules(
    equation: Any,
    forward: Callable[[Any], RuleOfOperands],
    backward: Callable[[Any], RuleOfOperands] | None,
) -> Any:
    """Replace the rules of a user's call with closure-converted ones, which take all its operands.

    The backward rule takes the values that the forward rule closes over, before the residuals.
    """
    params, thunk = equation.params, _THUNKS[jaxprs.name_of(equation)]
    changed = {thunk: _rule(forward, params[thunk]), "num_consts": 0}
    if backward is not None:
        changed["bwd"] = _rule(backward, params["bwd"])
        count = changed["bwd"].f.closed_over
        changed["out_trees"] = functools.partial(_with_residuals, params["out_trees"], count)
    return equation.replace(params={**params, **changed})


def _rule(make: Callable[[Any], RuleOfOperands], old: Any) -> Any:
    return _linear_util.wrap_init(make(old), debug_info=old.debug_info.with_unknown_names())


def _with_residuals(trees: Callable[[], Any], count: int) -> tuple[Any, Any, list[int | None]]:
    """Return `trees()` with `count` more leading operands that are residuals."""
    out_tree, tree, forwarded = trees()
    leaves = list(range(count + tree.num_leaves))
    return out_tree, jax.tree.structure(leaves), [*range(count), *forwarded]


def _without_const_handling(bwd: Any) -> Any:
    """Return what identifies a backward rule, without layers added by evaluating its equation."""
    if not is_wrapped_function(bwd):
        return bwd
    layers = _custom_derivatives._handle_consts_in_bwd.args
    transforms = tuple(t for t in bwd.transforms if t[0] not in layers)
    if not transforms and isinstance(bwd.f, RuleOfOperands):
        return _without_const_handling(bwd.f.rule)
    if not transforms and (dead := _before_dead_code(bwd.f)) is not None:
        return _for_used(_without_const_handling(dead.rule), dead.used)
    return bwd.f, transforms, bwd.params


class _Dead(NamedTuple):
    """A rule after dead code elimination: the whole rule, and which results are used."""

    rule: Any
    used: tuple[bool, ...]


def _before_dead_code(function: Any) -> _Dead | None:
    """Return the rule that JAX's dead code elimination has put in this function, or None."""
    used = variable(function, "used_outs")
    return (
        None if used is None else _Dead(variable(function, *_THUNKS.values(), "bwd"), tuple(used))
    )


def _for_used(rule: Any, used: tuple[bool, ...]) -> Any:
    """Return what identifies a rule after dead code elimination: with flags if it changed it."""
    return rule if all(used) else (rule, used)


class BatchOfRule(NamedTuple):
    """A batch that `jax.vmap` adds to the forward rule of a call.

    Attributes:
      name: the axis that collectives may name, or None.
      size: how many items the batch has.
      in_axes: where each operand has the batch axis, or None for one that all items share.
      out_axes: the same of each result of the call, as the rule gave it when it ran last.
    """

    name: Any
    size: int
    in_axes: tuple[int | None, ...]
    out_axes: tuple[int | None, ...]


def batches_of_rule(equation: Any) -> list[BatchOfRule]:
    """Return the batches that `jax.vmap` made of a user's call, the outermost first.

    The forward rule has run: only then is known where it has the batch.
    """
    name, params = jaxprs.name_of(equation), equation.params
    if name not in _THUNKS:
        return []
    count = len(equation.outvars)
    return [*_batches(params[_THUNKS[name]], [True] * count, name == "custom_vjp_call")]


def _batches(thunk: Any, used: Sequence[bool], has_flags: bool) -> Iterator[BatchOfRule]:
    function = getattr(thunk, "f", thunk)
    if isinstance(function, RuleOfOperands):
        yield from _batches(function.rule, used, has_flags)
        return
    traced = variable(function, "fn")
    if (dead := _before_dead_code(traced)) is not None:
        left = iter(used)
        yield from _batches(dead.rule, [use and next(left) for use in dead.used], has_flags)
        return
    inner = variable(traced, "jvp", "fwd")
    if inner is None:
        return
    for (_, arguments), store in zip(inner.transforms, inner.stores, strict=True):
        axis = next((each for each in arguments if isinstance(each, _batching.AxisData)), None)
        if axis is not None:
            ins = arguments[-1][::2] if has_flags else arguments[-1]  # a flag behind each operand
            outs = store.val[len(store.val) - len(used) :]
            name = axis.name if has_name(axis) else None
            yield BatchOfRule(name, axis.size, tuple(ins), tuple(itertools.compress(outs, used)))
    if (before := variable(inner.f, *_THUNKS.values())) is not None:
        yield from _batches(before, used, has_flags)
