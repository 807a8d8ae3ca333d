"""The rules of a user's function, inside of what JAX puts around them in an equation."""

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

from pullback._jax import derivatives, hijax, jaxprs, source_info, tracing
from pullback._jax.reflect import has_name, held_by_jax, is_of_a_user, is_wrapped_function


def rule_functions(equation: Any) -> tuple[Any, ...] | None:
    """What tells one user rule from another: the rule functions and the plain parameters.

    None for an equation of a primitive of JAX, which is told by its parameters.
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
    """The functions of a user's rule, without what JAX puts around them; those that are known."""
    name, params = jaxprs.name_of(equation), hijax.parameters_of(equation)
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
    """Whether the one call in there has rules that see which operands are perturbed."""
    return bool(hijax.parameters_of(closed.eqns[0]).get("symbolic_zeros", False))


def num_residuals(equation: Any) -> int | None:
    """How many leading operands of a linear call are residuals; None for other calls."""
    name, params = jaxprs.name_of(equation), equation.params
    if name == "linear_call":
        return params["num_callee_consts"] + params["num_res"]
    if name == "custom_lin":
        return params["num_res"]
    if name == "call_hi_primitive_linearized":
        return params["residuals_tree"].num_leaves
    return None


def rule_name(equation: Any) -> str | None:
    """The name of the user's function that an equation with a custom rule calls."""
    for body in ("call_jaxpr", "callee"):
        if body in equation.params:
            name = source_info.function_name(equation.params[body])
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
    held = held_by_jax(getattr(forward, "f", forward))
    functions = [each for each in held if callable(each) and is_of_a_user(each)]
    return getattr(functions[0], "__name__", "wrapped_fun") if functions else "wrapped_fun"


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


_THUNKS = {"custom_jvp_call": "jvp_jaxpr_fun", "custom_vjp_call": "fwd_jaxpr_thunk"}
"""The parameter of a user's call that holds its forward rule."""


class RuleInside(NamedTuple):
    """The forward rule of a user's call, in whatever JAX and we have put around it.

    Attributes:
      rule: what tells it from others.
      closed_over: how many leading operands the call's function closes over: JAX has no
        derivatives by these.
      known: which of those operands each value of a trace is, by name.
      closed: whether there is a `RuleOfOperands` around it.
      memories: what it has given, by its arguments, in each of the layers.
    """

    rule: Any
    closed_over: int = 0
    known: Mapping[Any, int] = {}
    closed: bool = False
    memories: tuple[dict[Any, Any], ...] = ()


class RuleOfOperands:
    """A rule, as JAX holds it, that finds what it closes over among the operands of its call.

    Attributes:
      rule: the rule that closes over values of a trace.
      added: types of leading operands that this has more than the rule.
      closed_over, known: as of `RuleInside`.
      made: what it has given, by its arguments.
      traced: the jaxprs of the rule, as the user wrote it.
    """

    def __init__(self, rule: Any, added: Sequence[Any], closed_over: int, known: Mapping[Any, int]):
        self.rule = rule
        self.added = added
        self.closed_over = closed_over
        self.known = known
        self.made: dict[Any, Any] = {}
        self.traced: list[Any] = []

    def __call__(self, *args: Any) -> Any:
        """Runs the rule."""
        raise NotImplementedError


def rule_inside(equation: Any) -> RuleInside:
    """The forward rule of a user's call; one that knows nothing for other calls."""
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
    """The closed jaxpr of a `jvp` rule for tangents of all operands, and which tangents are zero.

    Its results are those of the function, and the tangents that are not zero.
    """
    thunk = equation.params["jvp_jaxpr_fun"]
    count = len(equation.invars) - equation.params["num_consts"]
    jaxpr, constants, zeros = thunk.call_wrapped(*[False] * count)
    return jaxprs.closed_with(jaxpr, constants), zeros


NamedResiduals = Callable[[Sequence[Any]], list[Any]]
"""Of the residuals that a forward function returns, those that its `bwd` rule takes."""


def traced_fwd(
    equation: Any, perturbed: Sequence[bool], literals: Mapping[int, Any]
) -> tuple[Any, NamedResiduals]:
    """The closed jaxpr of a `fwd` rule, and how its residuals are those that it names.

    Its results are those of the function, and then the residuals, each of them once. Numbers of
    Python are handed on as they are: those of a shape, and operands that are `literals`.
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
    """The cotangents of all operands by a `bwd` rule, some of which JAX's zeros may stand for."""
    returned = equation.params["bwd"].call_wrapped(*residuals, *cotangents)
    return list(returned[0] if derivatives.has_logs(returned) else returned)


def linear_cotangents(equation: Any) -> list[Any]:
    """The dtypes of the cotangents that the transpose of a `linear_call` takes.

    They are not those of the results where the call is the transpose of another one, and that gives
    cotangents of another type than its operand's.
    """
    closed, _ = equation.params["transpose_thunk"]()
    return [v.aval.dtype for v in jaxprs.inputs_of(closed)[-len(equation.outvars) :]]


def run_linear_transpose(
    equation: Any, residuals: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """The cotangents of all operands by the transpose of a `linear_call`; None of residuals.

    Cotangents of other types than the results' go through the equations that JAX has traced for
    these, as they do in JAX.
    """
    own = equation.params["num_callee_consts"]
    with equation.ctx.manager:
        closed, constants = equation.params["transpose_thunk"]()
        values = [*constants, *residuals[own:], *cotangents]
        found = tracing.apply(closed, values)
    return [*[None] * len(residuals), *found]


def forget_runs(closed: Any) -> None:
    """Lets the forward rule of the one call in there run again for arguments that it has had.

    A run leaves the trees of the results and residuals beside the rule, where those of the last run
    are: it may have been one for other arguments, or have failed.
    """
    for memory in rule_inside(closed.eqns[0]).memories:
        memory.clear()


def _memoised(thunk: Any) -> RuleInside:
    """Return what `_unwrapped` finds, which is asked for several times of each call."""
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
"""An attribute of the function that JAX has put around the rule, which may lead to it again: a
dictionary of all these functions would keep both."""

_UNKNOWN = (lambda: None), _NO_RULE


def _lifted(inside: RuleInside, count: int) -> RuleInside:
    """The rule of a call that has so many leading operands more."""
    known = {name: count + position for name, position in inside.known.items()}
    return inside._replace(closed_over=count + inside.closed_over, known=known)


def _unwrapped(thunk: Any) -> RuleInside:
    """Return the user's rule inside the layers that JAX puts on it, and the constants they lift.

    An equation holds a memoised function around the rule, new at each call. When JAX evaluates
    the equation again (inside another rule, say), it lifts the constants and wraps that once more;
    and so when it removes dead code, which changes nothing where all results are used. Layers are
    told by the types of what JAX's functions hold. Should JAX come to store rules in another way,
    the thunk's own identity decides, and the rule is staged once per use.
    """
    function = getattr(thunk, "f", thunk)
    if isinstance(function, RuleOfOperands):
        inside, known = _unwrapped(function.rule), function.known
        memories = function.made, *inside.memories
        return RuleInside(inside.rule, function.closed_over, known, True, memories)
    held = held_by_jax(function)
    traced = _only(types.FunctionType, held)
    if (dead := _before_dead_code(traced)) is not None:
        inside = _unwrapped(dead.rule)
        inside = inside._replace(rule=_for_used(inside.rule, dead.used))
    else:
        inside = _beneath(thunk, _wrapped_in(traced))
    memory = _only(dict, held)
    return inside if memory is None else inside._replace(memories=(memory, *inside.memories))


def _beneath(thunk: Any, inner: Any) -> RuleInside:
    """Return the user's rule inside the function that a thunk traces, if that is known."""
    if inner is None:
        return RuleInside(thunk)
    before = _wrapped_in(inner.f)
    if before is None:
        return RuleInside(inner)
    inside = _lifted(_unwrapped(before), _only(int, held_by_jax(inner.f)) or 0)
    if inner.transforms:
        inside = inside._replace(rule=(inside.rule, inner.transforms, inner.params))
    return inside


def _only(kind: type, held: Sequence[Any]) -> Any:
    """Return the one object of a class among these, or None."""
    found = [each for each in held if type(each) is kind]
    return found[0] if len(found) == 1 else None


def _wrapped_in(function: Any) -> Any:
    """Return the one wrapped function that a function of JAX's holds, or None."""
    found = [each for each in held_by_jax(function) if is_wrapped_function(each)]
    return found[0] if len(found) == 1 else None


def with_rules(
    equation: Any,
    forward: Callable[[Any], RuleOfOperands],
    backward: Callable[[Any], RuleOfOperands] | None,
) -> Any:
    """A user's call with other rules, made of its own, which take all its operands.

    What the forward rule closes over is given to the backward rule before the residuals.
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
    """The trees of results and residuals, and which operands are residuals: so many more."""
    out_tree, tree, forwarded = trees()
    leaves = list(range(count + tree.num_leaves))
    return out_tree, jax.tree.structure(leaves), [*range(count), *forwarded]


def _without_const_handling(bwd: Any) -> Any:
    """Return the parts of a backward rule, without what evaluating an equation puts around it."""
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
    """A rule without dead code: the whole rule, and which results of the call are used."""

    rule: Any
    used: tuple[bool, ...]


def _before_dead_code(function: Any) -> _Dead | None:
    """Return the rule that JAX made this function of when it removed dead code, or None."""
    rule = _wrapped_in(function)
    used = next(filter(_are_flags, held_by_jax(function)), None)
    return None if rule is None or used is None else _Dead(rule, tuple(used))


def _are_flags(value: Any) -> bool:
    listed = isinstance(value, (list, tuple)) and len(value) > 0
    return listed and all(type(each) is bool for each in value)


def _for_used(rule: Any, used: tuple[bool, ...]) -> Any:
    """Return what tells a rule from the same one without dead code, if there was any."""
    return rule if all(used) else (rule, used)


class BatchOfRule(NamedTuple):
    """What `jax.vmap` adds to the forward rule of a call.

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
    traced = _only(types.FunctionType, held_by_jax(function))
    if (dead := _before_dead_code(traced)) is not None:
        left = iter(used)
        yield from _batches(dead.rule, [use and next(left) for use in dead.used], has_flags)
        return
    inner = _wrapped_in(traced)
    if inner is None:
        return
    for (_, arguments), store in zip(inner.transforms, inner.stores, strict=True):
        axis = next((each for each in arguments if isinstance(each, _batching.AxisData)), None)
        if axis is not None:
            ins = arguments[-1][::2] if has_flags else arguments[-1]  # a flag behind each operand
            outs = store.val[len(store.val) - len(used) :]
            name = axis.name if has_name(axis) else None
            yield BatchOfRule(name, axis.size, tuple(ins), tuple(itertools.compress(outs, used)))
    if (before := _wrapped_in(inner.f)) is not None:
        yield from _batches(before, used, has_flags)
