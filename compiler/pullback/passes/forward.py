"""Forward mode: every op is followed by the ops that compute its tangents."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.dialect.masks import masked
from pullback.passes.activity import active_results
from pullback.passes.checks import check_body, check_count, check_known, check_type
from pullback.passes.differentiation import Differentiation
from pullback.passes.regions import (
    captures,
    latest,
    operands_of,
    operations,
    replace_terminator,
    results_of,
    terminator,
)
from pullback.passes.signatures import set_signature
from pullback.rules.registry import RULES, Op


@dataclass(frozen=True)
class Refused:
    """Stands for a tangent that cannot be had: an error where something needs it.

    Nothing does where stop_gradient follows. The gradient of a loss that stops the derivative of a
    solver still holds the call with its rule, and has a derivative by all else.
    """

    error: Exception


def unrefused(tangents: Sequence[Any]) -> list[Value | None]:
    """These tangents, none of which may be refused."""
    for t in tangents:
        if t.__class__ is Refused:
            raise t.error
    return list(tangents)


class Forward:
    """The forward sweep; the frame that rules see.

    `tangents` maps primal values to their tangents. A value that is not in it has a zero one.
    """

    linear = False
    record = Op

    def __init__(self, diff: Differentiation, tangents: dict[Value, Value]) -> None:
        self.diff = diff
        self.tangents = tangents
        self.replaced: dict[Value, Value] = {}
        self.pending: list[Any] = []

    def primal(self, v: Value) -> Value:
        return v

    def run(self, block: Any) -> list[Value | None]:
        """Emit tangents behind each op of the block; the tangents of what the block returns."""
        return unrefused(self.sweep(block))

    def sweep(self, block: Any) -> list[Value | Refused | None]:
        """The same; what is refused may be among them."""
        sequence = operations(block)
        with build.inserting(None):
            for operation, following in itertools.pairwise(sequence):
                self._visit(operation, following)
        returned = list(sequence[-1].operands)
        self._settle()
        return [self.tangents.get(v) for v in returned]

    def _visit(self, operation: Any, following: Any) -> None:
        rule = RULES.get(operation.name)
        if rule is None:
            check_known(operation, operation.name, self.tangents)
            return
        operands = operands_of(operation)
        if rule.regions:
            operands += captures(operation)
        known = self.tangents
        tangents = [known.get(v) for v in operands]
        active = [t is not None for t in tangents]
        if True not in active:
            check_body(operation, rule, known)
            return
        op = Op(operation, operands, results_of(operation), active, rule, self)
        build.here.ip = ir.InsertionPoint(following)
        build.here.loc = operation.location
        if rule.variant is not None:
            rule = op.rule = rule.variant(op)
        for t in tangents:
            if t.__class__ is Refused:
                known.update(dict.fromkeys(active_results(op), t))
                return
        found = rule.jvp(op, tangents)
        if rule.checked:
            self._check(op, found)
        for r, t in zip(op.results, found, strict=True):
            if t is not None:
                known[r] = t

    @staticmethod
    def _check(op: Op, found: Any) -> None:
        check_count(op, found, len(op.results), "tangent")
        for r, t in zip(op.results, found, strict=True):
            if t is not None and t.__class__ is not Refused:
                check_type(op, t, r.type, "tangent")

    def replace(self, op: Op, new: Sequence[Value]) -> None:
        """Put new results in the place of an op's, once the block is done.

        Until then the old ones stand for them: a rule may return one of its arguments as a result,
        whose tangent is another one than the argument's.
        """
        self.replaced.update(zip(op.results, new, strict=True))
        self.pending.append(op.operation)

    def _settle(self) -> None:
        """A tangent may be a primal value as well."""
        if self.replaced:
            moved = {v: latest(t, self.replaced) for v, t in self.tangents.items()}
            self.tangents.update(moved)
        for old in self.replaced:
            old.replace_all_uses_with(latest(old, self.replaced))
        for operation in self.pending:
            self.diff.detach(operation)
        self.replaced, self.pending = {}, []


def jvp_in_place(
    diff: Differentiation, name: str, mask: str, instantiate: bool
) -> list[bool | Refused]:
    """(args…) → (outs…) becomes (args…, tangents…) → (outs…, tangents of outs…).

    With `instantiate`, every inexact result has a tangent; without, only those flagged in what is
    returned, where what is refused has no tangent either.
    """
    function, block = diff.function(name), diff.block(name)
    loc = function.location
    arguments = list(block.arguments)
    tangents = {a: block.add_argument(a.type, loc) for a in masked(arguments, mask)}
    found = Forward(diff, tangents).sweep(block)
    outs = list(terminator(block).operands)
    if instantiate:
        found = unrefused(found)
        with build.inserting(ir.InsertionPoint(terminator(block)), loc):
            found = [
                build.instantiate(t, v) if build.inexact(v.type) else None
                for t, v in zip(found, outs, strict=True)
            ]
    flags = [t if t.__class__ is Refused else t is not None for t in found]
    moving = [t for t, flag in zip(found, flags, strict=True) if flag is True]
    replace_terminator(block, [*outs, *moving])
    set_signature(function)
    return flags


def jvp_function(diff: Differentiation, name: str, mask: str) -> tuple[str, list[bool | Refused]]:
    """@name with tangents of its masked arguments; and which of its results have one."""

    def derive() -> tuple[str, list[bool | Refused]]:
        new_name = diff.clone_function(name, f"{name}.jvp")
        return new_name, jvp_in_place(diff, new_name, mask, instantiate=False)

    return diff.cached(("jvp", name, mask), derive)
