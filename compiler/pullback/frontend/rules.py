"""The rule table of a program: derivative rules, staged to IR once, when first asked for."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax
import numpy as np

from pullback import _jax
from pullback._errors import MissingRuleError
from pullback._jax import ir
from pullback.frontend import link
from pullback.frontend.identity import Identities
from pullback.frontend.keep import Keeper, is_inexact


@dataclasses.dataclass(frozen=True)
class Rule:
    """One kept call: what it computes, and the original call that knows its derivatives."""

    key: str
    op: str
    primitive: str
    call: Any
    decomposition: Any
    num_residuals: int | None
    where: str | None

    @property
    def inexact(self) -> list[int]:
        """The positions of the operands that have tangents."""
        return [i for i, aval in enumerate(self.call.in_avals) if is_inexact(aval)]


class RuleTable:
    """Rules by key; each is traced once per kind and mask, and linked into modules on demand."""

    def __init__(self, platforms: tuple[str, ...] = ("cpu",)):
        self.platforms = platforms
        self.keepalives: list[Any] = []
        self.host_callbacks: list[Any] = []
        self.traces = 0
        self._rules: dict[str, Rule] = {}
        self._keys: dict[Any, str] = {}
        self._traced: dict[tuple[str, str, str], tuple[Any, ...]] = {}
        self._lowered: dict[int, ir.Module] = {}
        self._identities = Identities()
        self.keeper = Keeper(self)

    def __getitem__(self, key: str) -> Rule:
        return self._rules[key]

    def __iter__(self):
        return iter(self._rules)

    def register(self, op: str, equation: Any, debug_info: Any, decomposition: Any) -> Rule:
        """The rule of a kept equation: the one already known for equal calls, or a new one."""
        identity = (op, self._identity(equation, decomposition))
        key = self._keys.get(identity)
        if key is None:
            key = self._keys[identity] = self._new_key(_name(equation))
            self._rules[key] = Rule(
                key=key,
                op=op,
                primitive=equation.primitive.name,
                call=_jax.equation_alone(equation, debug_info),
                decomposition=decomposition,
                num_residuals=_num_residuals(equation),
                where=_jax.user_line(equation),
            )
        return self._rules[key]

    def stage(
        self, module: ir.Module, key: str, kind: str, mask: str
    ) -> str | tuple[str, str]:
        """Symbol(s) in `module` of a rule; traced, lowered and linked on first request.

        Args:
          module: the module to link the rule into.
          key: the rule's key, as in a composite's attribute `rule`.
          kind: 'jvp', 'vjp' (names of the forward and the backward function) or 'transpose'.
          mask: one character per inexact operand, '1' for perturbed.

        Raises:
          MissingRuleError: neither JAX nor the user's program has such a rule.
        """
        traced = self._traced.get((key, kind, mask))
        if traced is None:
            traced = self._traced[key, kind, mask] = self._trace(self._rules[key], kind, mask)
        names = _symbols(key, kind, mask)
        symbols = [
            self._link(module, name, closed) for name, closed in zip(names, traced, strict=True)
        ]
        return symbols[0] if len(symbols) == 1 else (symbols[0], symbols[1])

    def _trace(self, rule: Rule, kind: str, mask: str) -> tuple[Any, ...]:
        if len(mask) != len(rule.inexact) or set(mask) - {"0", "1"}:
            raise ValueError(f"mask {mask!r} for {rule.key}, of {len(rule.inexact)} operands")
        self.traces += 1
        chosen = [i for i, bit in zip(rule.inexact, mask, strict=True) if bit == "1"]
        try:
            closed = {"jvp": _jvp, "vjp": _vjp, "transpose": _transpose}[kind](rule, chosen)
        except NotImplementedError as error:
            raise _missing(rule, kind, mask) from error
        return tuple(self.keeper.keep(each) for each in closed)

    def _link(self, module: ir.Module, name: str, closed: Any) -> str:
        if link.find(module, name) is not None:
            return name
        if id(closed) not in self._lowered:
            self._lowered[id(closed)] = link.lower_alone(name, closed, self)
        return link.merge(module, self._lowered[id(closed)], name)

    def _identity(self, equation: Any, decomposition: Any) -> Any:
        types = tuple(atom.aval for atom in equation.invars)
        functions = _jax.rule_functions(equation)
        if functions is None:
            params = self._identities.parameters(equation.params)
            return equation.primitive.name, types, params
        function = self._identities.function(functions)
        return types, function, self._identities.jaxpr(decomposition)

    def _new_key(self, name: str) -> str:
        key, number = name, 0
        while key in self._rules:
            number += 1
            key = f"{name}_{number}"
        return key


def _jvp(rule: Rule, chosen: list[int]) -> tuple[Any, ...]:
    call = _jax.equations_to_function(rule.call)
    outs = [i for i, aval in enumerate(rule.call.out_avals) if is_inexact(aval)]

    def jvp(args, tangents):
        primals = [args[i] for i in chosen]
        results, derivatives = jax.jvp(_restricted(call, args, chosen), primals, list(tangents))
        return results, [derivatives[i] for i in outs]

    args = _structs(rule.call.in_avals)
    return (jax.make_jaxpr(jvp)(args, [args[i] for i in chosen]),)


def _vjp(rule: Rule, chosen: list[int]) -> tuple[Any, ...]:
    call = _jax.equations_to_function(rule.call)
    outs = rule.call.out_avals
    structure = []

    def forward(args):
        results, pull = jax.vjp(_restricted(call, args, chosen), *[args[i] for i in chosen])
        residuals, tree = jax.tree.flatten(pull)
        structure.append(tree)
        return results, residuals

    def backward(residuals, cotangents):
        pull = jax.tree.unflatten(structure[0], residuals)
        return pull(_with_float0(outs, cotangents))

    args = _structs(rule.call.in_avals)
    forward_closed = jax.make_jaxpr(forward)(args)
    residuals = _structs(forward_closed.out_avals[len(outs) :])
    cotangents = [aval for aval in _structs(outs) if is_inexact(aval)]
    return forward_closed, jax.make_jaxpr(backward)(residuals, cotangents)


def _transpose(rule: Rule, chosen: list[int]) -> tuple[Any, ...]:
    call = _jax.equations_to_function(rule.call)
    avals = _structs(rule.call.in_avals)
    kept = [i for i in range(len(avals)) if i not in chosen]

    def transpose(args, cotangents):
        full = [None] * len(avals)
        for i, value in zip(kept, args, strict=True):
            full[i] = value
        linear = _restricted(call, full, chosen)
        pull = jax.linear_transpose(linear, *[avals[i] for i in chosen])
        return pull(_with_float0(rule.call.out_avals, cotangents))

    cotangents = [aval for aval in _structs(rule.call.out_avals) if is_inexact(aval)]
    return (jax.make_jaxpr(transpose)([avals[i] for i in kept], cotangents),)


def _restricted(call: Any, args: Any, chosen: list[int]) -> Any:
    """The call as a function of the chosen arguments, the others held fixed."""

    def restricted(*values):
        full = list(args)
        for i, value in zip(chosen, values, strict=True):
            full[i] = value
        return call(*full)

    return restricted


def _with_float0(avals: Any, cotangents: Any) -> list[Any]:
    """Cotangents for all results: JAX wants a float0 zero where we have no slot."""
    given = iter(cotangents)
    return [
        next(given) if is_inexact(aval) else np.zeros(aval.shape, jax.dtypes.float0)
        for aval in avals
    ]


def _structs(avals: Any) -> list[jax.ShapeDtypeStruct]:
    return [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
        for aval in avals
    ]


def _symbols(key: str, kind: str, mask: str) -> tuple[str, ...]:
    suffix = "" if "0" not in mask else f".{mask}"
    if kind == "vjp":
        return f"{key}.fwd{suffix}", f"{key}.bwd{suffix}"
    if kind == "transpose":
        return (f"{key}.t.{mask}",)
    return (f"{key}.jvp{suffix}",)


def _name(equation: Any) -> str:
    name = _jax.rule_name(equation) or equation.primitive.name
    return re.sub(r"\W+", "_", name).strip("_") or "call"


def _num_residuals(equation: Any) -> int | None:
    if equation.primitive.name != "linear_call":
        return None
    return equation.params["num_callee_consts"] + equation.params["num_res"]


def _missing(rule: Rule, kind: str, mask: str) -> MissingRuleError:
    return MissingRuleError(
        f"no {kind} rule for `{rule.key}` with operands {mask} perturbed",
        where=rule.where,
        do="wrap this step in jax.custom_vjp or jax.custom_jvp",
    )
