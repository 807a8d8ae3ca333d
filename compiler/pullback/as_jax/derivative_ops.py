"""Turn ops that have derivative rules into functions of JAX with these rules.

The rules of our three ops are in the module; those of a composite are registered by its name.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from pullback._jax.linear_maps import Unknown, linear_map
from pullback.as_jax.custom_calls import is_foreign
from pullback.as_jax.table import Array, Flat, OpInJax, aval_of
from pullback.autodiff import registry
from pullback.errors import MissingRuleError, PullbackError
from pullback.ir import build, masks, ops
from pullback.ir.locations import UNKNOWN, user_line_of
from pullback.ir.ops import CustomJVPCall, CustomVJPCall, LinearCall, inexact_positions
from pullback.ir.regions import operations
from pullback.ir.symbols import called


@dataclasses.dataclass(frozen=True)
class RuleInModule:
    """Describe the origin of a rule in a module, of which the functions here are not lines.

    Attributes:
      rules: the functions of the rule, each with its first line; empty if there are none.
      where: the line of the call.
      call: for a composite with a registered rule, the op itself as one call of the module.
      is_backward: True if there is a rule for reverse mode, and none for forward mode.
    """

    rules: str
    where: str
    call: Flat | None = None
    is_backward: bool = False


ATTRIBUTE = "rule_in_module"
"""Names the attribute of a Python function that stands for a rule: its `RuleInModule`."""


def _note(function: Any, view: Any, functions: Any) -> None:
    """Say of a function where the rule that it stands for comes from."""
    rules = [_described(name, functions) for name in view.symbols.values()]
    where = user_line_of(view.op) or UNKNOWN
    is_backward = isinstance(view, CustomVJPCall) and not _has_jvp(view)
    setattr(function, ATTRIBUTE, RuleInModule(" and ".join(rules), where, is_backward=is_backward))


def _with_rule(view: Any, run: Flat, rule: Callable[..., Any], functions: Any) -> Flat:
    """Return a function with a rule that JAX asks for tangents."""

    def function(*args: Array) -> list[Array]:
        return run(*args)

    _note(rule, view, functions)
    function.__name__ = function.__qualname__ = view.decomposition
    with_rule = jax.custom_jvp(function)
    with_rule.defjvp(rule, symbolic_zeros=True)
    return with_rule


def _described(name: str, functions: Any) -> str:
    lines = map(user_line_of, operations(functions.block(name)))
    return f"@{name}" + next((f" at {line}" for line in lines if line), "")


def call_with_rules(op: OpInJax) -> Flat | None:
    """Return the function of a derivative op, or of a composite that has a rule, with its rules.

    Return None for any other op.
    """
    view = ops.view(op.operation)
    if view is None:
        return _registered(op)
    makers: dict[type, Callable[[Any, Any], Flat]] = {
        CustomJVPCall: _with_jvp,
        CustomVJPCall: _with_vjp,
        LinearCall: _linear,
    }
    return makers[type(view)](view, op.functions)


def _registered(op: OpInJax) -> Flat | None:
    """Return the function of a composite whose name has a rule in this process, with that rule."""
    name = ops.composite_name(op.operation)
    if name not in registry.RULES and name not in registry.NONDIFFERENTIABLE:
        return None
    run = op.functions.inline(str(called(op.operation)))
    said = f"the rule registered for `{name}`" if name in registry.RULES else ""
    return with_rule_of_module(op, str(name), run, said)


def with_rule_of_module(op: OpInJax, name: str, run: Flat, said: str = "") -> Flat:
    """Return a function that computes an op, with the derivative that the module has of it.

    That is an error if it has none: JAX may give zero. `said` describes a rule, if there is one.
    """

    def function(*args: Array) -> list[Array]:
        return run(*args)

    def rule(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return jax.jvp(op.functions.one_call(op.operation), primals, tangents)

    where = user_line_of(op.operation) or UNKNOWN
    call = op.functions.one_call(op.operation) if said else None
    setattr(rule, ATTRIBUTE, RuleInModule(said, where, call))
    function.__name__ = function.__qualname__ = name
    with_rule = jax.custom_jvp(function)
    with_rule.defjvp(rule)
    return with_rule


# ------------------------------------------------------------------------------ custom_jvp_call


def _with_jvp(view: CustomJVPCall, functions: Any) -> Flat:
    if _is_solver(view, functions):
        return functions.one_call(view.op)
    run = functions.inline(view.decomposition)
    if view.transposes() and not _is_sum(view, functions):
        run = _with_transposes(view, run, functions)

    def rule(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Any, Any]:
        mask = _mask(tangents[i] for i in inexact_positions(view.operands))
        found = _jvp_rule(view, mask)
        if found is None:
            return run(*primals), _refused(view, mask, tangents, functions)
        outs, moved = _applied(view, found, primals, tangents, functions)
        zeros = functions.stay_zero(found[0])[len(outs) :]
        return outs, _tangents_of(view, map(_tangent, moved, zeros))

    return _with_rule(view, run, rule, functions)


def _applied(
    view: Any,
    rule: tuple[str, str],
    primals: Sequence[Array],
    tangents: Sequence[Any],
    functions: Any,
) -> tuple[list[Array], list[Array]]:
    """Return the results of a call, and the tangents of the inexact ones, by a forward rule."""
    name, mask = rule
    moving = [_instantiated(tangents[i]) for i in _positions(view, mask)]
    found = functions.inline(name)(*primals, *moving)
    count = len(view.results)
    return found[:count], found[count:]


def _tangents_of(view: Any, moved: Iterator[Any]) -> list[Any]:
    """Return the tangents of all results, given those of the inexact ones."""
    inexact = inexact_positions(view.results)
    none = (np.zeros(build.shape(v), jax.dtypes.float0) for v in view.results)
    return [next(moved) if i in inexact else x for i, x in enumerate(none)]


def _refused(view: Any, mask: str, tangents: Sequence[Any], functions: Any) -> list[Any]:
    """Return tangents that raise where they are used, for operands that no rule is for.

    JAX looks for the tangents of a loop's carries that move, and asks for fewer first; what it
    traces then, it drops. Zero are those that a rule for more operands says to be zero.
    """
    moving = [tangents[i] for i in _positions(view, mask)]
    wider = min(_rules_for(view, mask), key=lambda rule: rule[1].count("1"), default=None)
    count = len(view.results)
    zeros = functions.stay_zero(wider[0])[count:] if wider else [False] * count
    body = _unknown(_missing(view, "jvp", mask), _moved_results(view))
    found = linear_map(body, _raising(body.error), moving, (), view.decomposition)
    return _tangents_of(view, map(_tangent, found, zeros))


def _unknown(error: Exception, results: Sequence[Any]) -> Unknown:
    """Return what stands for a map to values of these types."""
    return Unknown(error, tuple(aval_of(v.type) for v in results))


def _moved_results(view: Any) -> list[Any]:
    return [view.results[i] for i in inexact_positions(view.results)]


def _raising(error: Exception) -> Callable[..., Any]:
    def raising(*_: Any) -> Any:
        raise error

    return raising


def _is_sum(view: CustomJVPCall, functions: Any) -> bool:
    """Return True for a call that adds, whose transposes hand a cotangent on, as JAX's do."""
    steps = [each.name for each in operations(functions.block(view.decomposition))]
    lengths = [len(list(operations(functions.block(name)))) for name, _ in view.transposes()]
    return steps[:-1] == ["stablehlo.add"] and set(lengths) == {1}


def _with_transposes(view: CustomJVPCall, run: Flat, functions: Any) -> Flat:
    """Return the function of a call as one map, which JAX transposes by the rules of the module."""

    def transpose(operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        inexact = inexact_positions(view.operands)
        mask = "".join("10"[operands[i] is not None] for i in inexact)
        found = [rule for rule in view.transposes() if masks.within(mask, rule[1])]
        if not found:
            raise _missing(view, "transpose", mask)
        name, covered = min(found, key=lambda rule: rule[1].count("1"))
        linear = _positions(view, covered)
        known = [x for i, x in enumerate(operands) if i not in linear]
        given = _filled(
            [cotangents[i] for i in inexact_positions(view.results)], _moved_results(view)
        )
        cts = dict(zip(linear, functions.inline(name)(*known, *given), strict=True))
        return [cts[i] if x is None else None for i, x in enumerate(operands)]

    return lambda *args: linear_map(run, transpose, args, (), view.decomposition)


def _filled(given: Sequence[Any], values: Sequence[Any]) -> list[Array]:
    """Return arrays, with zeros of the type of a value of the module for each that is None."""
    avals = [aval_of(v.type) for v in values]
    return [
        jnp.zeros(aval.shape, aval.dtype) if x is None else x
        for x, aval in zip(given, avals, strict=True)
    ]


def _is_solver(view: CustomJVPCall, functions: Any) -> bool:
    """Return True for a call whose transpose is not that of its function, op by op.

    A linear solver knows the transposed system, and its steps have no derivative by the matrix.
    JAX's `linear_call` has none by such an operand either. JAX cannot transpose calls of a library.
    It transposes a function that is linear in all operands, or of one op.
    """
    *steps, _ = operations(functions.block(view.decomposition))
    if any(map(is_foreign, steps)):
        return bool(view.transposes())
    partial = any("0" in mask for _, mask in view.transposes())
    return partial and (len(steps) > 1 or any(called(each) for each in steps))


def _has_jvp(view: Any) -> bool:
    return any(name.partition(".")[0] == "jvp" for name in view.symbols)


def _jvp_rule(view: Any, mask: str) -> tuple[str, str] | None:
    """Return the forward rule for a mask and the mask that it is of; None if there is none."""
    name = view.jvp(mask)
    found = (mask, name) if name else view.covering(mask)
    return (found[1], found[0]) if found else None


def _rules_for(view: Any, mask: str) -> list[tuple[str, str]]:
    """Return all forward rules for the operands of a mask or more, each with its mask."""
    named = [(n.partition("."), symbol) for n, symbol in view.symbols.items()]
    rules = [(symbol, m or view.own_mask) for (kind, _, m), symbol in named if kind == "jvp"]
    return [rule for rule in rules if masks.within(mask, rule[1])]


def _positions(view: Any, mask: str) -> list[int]:
    """Return the operands that a mask of the inexact ones chooses."""
    inexact = inexact_positions(view.operands)
    return [i for i, flag in zip(inexact, mask, strict=True) if flag == "1"]


def _mask(tangents: Any) -> str:
    return "".join("0" if isinstance(t, SymbolicZero) else "1" for t in tangents)


def _instantiated(tangent: Any) -> Array:
    if isinstance(tangent, SymbolicZero):
        return jnp.zeros(tangent.aval.shape, tangent.aval.dtype)
    return tangent


def _tangent(tangent: Array, is_zero: bool) -> Any:
    return SymbolicZero(jax.typeof(tangent)) if is_zero else tangent


def _missing(view: Any, kind: str, mask: str) -> MissingRuleError:
    """Return the error for a derivative that the module has no rule for."""
    said = view.refusal(kind, mask)
    return MissingRuleError(
        f"no {kind} rule of @{view.decomposition} for the operands {mask}"
        + (f": {said}" if said else " in the module"),
        where=user_line_of(view.op),
        do="differentiate by other arguments, or the program itself: program.grad()",
    )


# ------------------------------------------------------------------------------ custom_vjp_call


def _with_vjp(view: CustomVJPCall, functions: Any) -> Flat:
    """Return the function of a call as one that JAX differentiates by the rule of each mode.

    JAX asks for tangents in both modes. They are a map of the given ones, whose transpose is the
    backward rule; the map itself is the forward rule, or the transposed backward rule.
    """
    run = functions.inline(view.decomposition)

    def rule(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Any, Any]:
        mask = _mask(tangents[i] for i in inexact_positions(view.operands))
        call = _CallOfPair(view, functions, mask, primals)
        operands = [*call.known, *(tangents[i] for i in call.moving)]
        linear = range(len(call.known), len(operands))
        found = _map(
            view.decomposition, call.push, call.pull, operands, linear, _moved_results(view)
        )
        return call.outs, _tangents_of(view, iter(found))

    return _with_rule(view, run, rule, functions)


def _map(
    name: str,
    push: Flat,
    pull: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
    operands: Sequence[Any],
    linear: Sequence[int],
    results: Sequence[Any],
) -> list[Array]:
    """Call a linear map, or one that raises where its values, of these types, are used."""
    try:
        return linear_map(push, pull, operands, linear, name)
    except PullbackError as error:
        return linear_map(_unknown(error, results), pull, operands, linear, name)


class _CallOfPair:
    """A call of a function with rules for reverse mode, for some operands that move.

    Attributes:
      pairs: the rules, of which those with cotangents of fewest results are first.
      moving: the positions of the operands that move.
      known: the operands of the map from their tangents, before these: the residuals of all
        pairs, after the operands of the call where there is a forward rule, which takes them.
    """

    def __init__(
        self, view: CustomVJPCall, functions: Any, mask: str, primals: Sequence[Array]
    ) -> None:
        self.view, self.functions, self.mask = view, functions, mask
        self.moving, self.pairs = _positions(view, mask), _pairs(view, mask)
        count = len(view.results)
        found = [functions.inline(pair.fwd)(*primals) for pair in self.pairs]
        self.outs = found[0][:count] if found else functions.inline(view.decomposition)(*primals)
        self.saved = [each[count:] for each in found]
        self.takes = list(primals) if _has_jvp(view) else []
        self.known = [*self.takes, *itertools.chain(*self.saved)]

    def push(self, *operands: Array) -> list[Array]:
        """Return the tangents of the inexact results."""
        view, moving = self.view, operands[len(self.known) :]
        if _has_jvp(view):
            rule, values = _jvp_rule(view, self.mask), operands[: len(self.takes)]
            if rule is None:
                raise _missing(view, "jvp", self.mask)
            by = dict(zip(self.moving, moving, strict=True))
            tangents = _filled([by.get(i) for i in range(len(values))], view.operands)
            return _applied(view, rule, values, tangents, self.functions)[1]
        if not self.pairs:
            raise _missing(view, "vjp", self.mask)
        pair, residuals = self.pairs[0], operands[: len(self.saved[0])]
        given = "".join("01"[i in self.moving] for i in _positions(view, pair.mask))
        name = self.functions.forward_map(view, pair.bwd, pair.mask, given)
        return self.functions.inline(name)(*residuals, *moving)

    def pull(self, operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the cotangents of the operands that move."""
        view, rest = self.view, iter(operands[len(self.takes) :])
        asked = "".join("10"[ct is None] for ct in cotangents)
        for pair, saved in zip(self.pairs, self.saved, strict=True):
            residuals = list(itertools.islice(rest, len(saved)))
            if masks.within(asked, pair.results):
                given = _filled(cotangents, _moved_results(view))
                found = self.functions.inline(pair.bwd)(*residuals, *given)
                zeros = self.functions.stay_zero(pair.bwd)
                named = zip(_positions(view, pair.mask), found, zeros, strict=True)
                by = {i: ct for i, ct, is_zero in named if not is_zero}
                return [*[None] * len(self.known), *map(by.get, self.moving)]
        raise _missing(view, "vjp", self.mask)


class _Pair(NamedTuple):
    """The rules of a function in reverse mode, with the masks of operands and results."""

    fwd: str
    bwd: str
    mask: str
    results: str


def _pairs(view: CustomVJPCall, mask: str) -> list[_Pair]:
    """Return the pairs of rules for the perturbed operands of a mask, those of fewest first."""
    found = [_Pair(*each) for each in view.pairs() if masks.within(mask, each[2])]
    if view.sees_zeros:
        found = [pair for pair in found if pair.mask == mask]
    fewest = min((pair.mask.count("1") for pair in found), default=0)
    best = [pair for pair in found if pair.mask.count("1") == fewest]
    return sorted(best, key=lambda pair: pair.results.count("1"))


# ------------------------------------------------------------------------------ linear_call


def _linear(view: LinearCall, functions: Any) -> Flat:
    def forward(*operands: Array) -> list[Array]:
        if view.transpose_only is None:
            return functions.inline(view.decomposition)(*operands)
        raise MissingRuleError(
            f"the linear map @{view.decomposition} is known by its transpose only: "
            f"{view.transpose_only}",
            where=user_line_of(view.op),
            do="differentiate in reverse mode",
        )

    def backward(*operands: Array) -> list[Array]:
        if view.transpose is None:
            raise _missing(view, "transpose", "")
        return functions.inline(view.transpose)(*operands)

    _note(backward, view, functions)
    maps = (forward, view.results), (backward, view.linear_operands)
    return lambda *args: _either_way(view, *maps, args)


def _either_way(view: LinearCall, one: Any, other: Any, operands: Sequence[Array]) -> list[Array]:
    """Call the map of a linear call, or its transpose, whose transpose is the other."""
    count, (body, values) = view.num_residuals, one

    def transpose(given: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        cts = _filled(cotangents, values)
        return [*[None] * count, *_either_way(view, other, one, [*given[:count], *cts])]

    linear = range(count, len(operands))
    return _map(view.decomposition, body, transpose, operands, linear, values)
