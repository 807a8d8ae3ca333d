"""Turn ops that have derivative rules into functions of JAX with these rules.

The rules of our three ops are in the module; those of a composite are registered by its name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero, linear_call

from pullback.autodiff import registry
from pullback.errors import MissingRuleError
from pullback.ir import masks, ops
from pullback.ir.locations import UNKNOWN, user_line_of
from pullback.ir.ops import CustomJVPCall, CustomVJPCall, LinearCall, inexact_positions
from pullback.ir.regions import operations
from pullback.ir.symbols import called
from pullback.program.as_jax.custom_calls import is_foreign
from pullback.program.as_jax.table import Array, Flat, Functions, OpInJax


@dataclasses.dataclass(frozen=True)
class RuleInModule:
    """Describe the origin of a rule in a module, of which the functions here are not lines.

    Attributes:
      rules: the functions of the rule, each with its first line; empty if there are none.
      where: the line of the call.
      call: for a composite with a registered rule, the op itself as one call of the module.
    """

    rules: str
    where: str
    call: Flat | None = None


ATTRIBUTE = "rule_in_module"
"""Names the attribute of a Python function that stands for a rule: its `RuleInModule`."""


def _note(function: Any, view: Any, functions: Functions) -> None:
    """Say of a function where the rule that it stands for comes from."""
    rules = [_described(name, functions) for name in view.symbols.values()]
    where = user_line_of(view.op) or UNKNOWN
    setattr(function, ATTRIBUTE, RuleInModule(" and ".join(rules), where))


def _described(name: str, functions: Functions) -> str:
    lines = map(user_line_of, operations(functions.block(name)))
    return f"@{name}" + next((f" at {line}" for line in lines if line), "")


def call_with_rules(op: OpInJax) -> Flat | None:
    """Return the function of a derivative op, or of a composite that has a rule, with its rules.

    Return None for any other op.
    """
    view = ops.view(op.operation)
    if view is None:
        return _registered(op)
    makers: dict[type, Callable[[Any, Functions], Flat]] = {
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


def with_rule_of_module(op: OpInJax, name: str, run: Callable[..., Any], said: str = "") -> Flat:
    """Return a function that computes an op, with the derivative that the module has of it.

    That is an error if it has none: JAX may give zero. `said` describes a rule, if there is one.
    """

    def function(*args: Array) -> list[Array]:
        found = run(*args)
        return found if isinstance(found, list) else [found]

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


def _with_jvp(view: CustomJVPCall, functions: Functions) -> Flat:
    if _is_solver(view, functions):
        return functions.one_call(view.op)
    run = functions.inline(view.decomposition)

    def function(*args: Array) -> list[Array]:
        return run(*args)

    def rule(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Any, Any]:
        mask = _mask(tangents[i] for i in inexact_positions(view.operands))
        name, used = _jvp_rule(view, mask)
        moving = [tangents[i] for i in _positions(view, used)]
        found = functions.inline(name)(*primals, *map(_instantiated, moving))
        count = len(view.results)
        zeros = functions.stay_zero(name)[count:]
        outs, rest = found[:count], map(_tangent, found[count:], zeros)
        return outs, [next(rest) if _is_inexact(out) else _no_tangent(out) for out in outs]

    function.__name__ = function.__qualname__ = view.decomposition
    _note(rule, view, functions)
    with_rule = jax.custom_jvp(function)
    with_rule.defjvp(rule, symbolic_zeros=True)
    return with_rule


def _is_solver(view: CustomJVPCall, functions: Functions) -> bool:
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


def _jvp_rule(view: CustomJVPCall, mask: str) -> tuple[str, str]:
    """Return the forward rule for a mask and the mask that it is of, or raise MissingRuleError."""
    name = view.jvp(mask)
    found = (mask, name) if name else view.covering(mask)
    if found is None:
        raise _missing(view, "jvp", mask)
    return found[1], found[0]


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


def _is_inexact(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _tangent(tangent: Array, is_zero: bool) -> Any:
    return SymbolicZero(jax.typeof(tangent)) if is_zero else tangent


def _no_tangent(x: Array) -> Any:
    return np.zeros(x.shape, jax.dtypes.float0)


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


def _with_vjp(view: CustomVJPCall, functions: Functions) -> Flat:
    run = functions.inline(view.decomposition)
    count = len(view.results)
    outs = inexact_positions(view.results)

    def function(*args: Array) -> list[Array]:
        return run(*args)

    def forward(*args: Any) -> tuple[list[Array], Any]:
        mask = "".join("01"[args[i].perturbed] for i in inexact_positions(view.operands))
        values = [each.value for each in args]
        found = [functions.inline(pair.fwd)(*values) for pair in _pairs(view, mask)]
        return found[0][:count], ([each[count:] for each in found], _Mask(mask))

    def backward(saved: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        residuals, mask = saved[0], saved[1].text
        moving = [cotangents[i] for i in outs]
        asked = _mask(moving)
        for pair, each in zip(_pairs(view, mask), residuals, strict=True):
            if masks.within(asked, pair.results):
                found = functions.inline(pair.bwd)(*each, *map(_instantiated, moving))
                cts = zip(_positions(view, pair.mask), found, functions.stay_zero(pair.bwd))
                given = {i: ct for i, ct, is_zero in cts if not is_zero}
                return tuple(map(given.get, range(len(view.operands))))
        raise _missing(view, "vjp", mask)

    function.__name__ = function.__qualname__ = view.decomposition
    _note(forward, view, functions)
    with_rule = jax.custom_vjp(function)
    with_rule.defvjp(forward, backward, symbolic_zeros=True)
    return with_rule


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Mask:
    """The mask of the operands that are perturbed, among the residuals."""

    text: str


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
    if not found:
        raise _missing(view, "vjp", mask)
    fewest = min(pair.mask.count("1") for pair in found)
    best = [pair for pair in found if pair.mask.count("1") == fewest]
    return sorted(best, key=lambda pair: pair.results.count("1"))


# ------------------------------------------------------------------------------ linear_call


def _linear(view: LinearCall, functions: Functions) -> Flat:
    count = view.num_residuals
    run = functions.inline(view.decomposition)
    if view.transpose_only is not None:
        raise MissingRuleError(
            f"the linear map @{view.decomposition} is known by its transpose only: "
            f"{view.transpose_only}",
            where=user_line_of(view.op),
            do="differentiate in reverse mode",
        )

    def forward(residuals: Sequence[Array], moving: Sequence[Array]) -> list[Array]:
        return run(*residuals, *moving)

    def backward(residuals: Sequence[Array], cotangents: Sequence[Array]) -> list[Array]:
        if view.transpose is None:
            raise _missing(view, "transpose", "")
        return functions.inline(view.transpose)(*residuals, *cotangents)

    _note(backward, view, functions)
    return lambda *args: linear_call(forward, backward, list(args[:count]), list(args[count:]))
