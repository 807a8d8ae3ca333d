"""Forward mode: after each op, emit the ops that compute its tangents.

Tangents by specialized rules are deferred and emitted together: before the next op whose rule is
not specialized, or where the block ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback._jax import ir
from pullback._jax.inlining import inlined
from pullback.autodiff.activity import active_results, numbered
from pullback.autodiff.checks import check_body, check_count, check_known, check_type
from pullback.autodiff.registry import RULES, Op, Row, Rule
from pullback.autodiff.specialized import (
    IN_FORWARD,
    UNFIT,
    Kind,
    Kinds,
    Reading,
    Specialized,
    kinds_in,
    reader,
    specialize_forward,
)
from pullback.autodiff.state import Differentiation
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.masks import masked
from pullback.ir.regions import (
    captures,
    latest,
    operands_of,
    operations,
    replace_terminator,
    results_of,
    terminator,
)
from pullback.ir.signatures import set_signature
from pullback_runtime.ir._erasure import retire


@dataclass(frozen=True)
class Refused:
    """A tangent that cannot be computed, which is an error only where something uses it.

    Nothing uses it where stop_gradient follows: the gradient of a loss that stops the derivative of
    a solver still holds the call with its rule, and has a derivative by everything else.
    """

    error: Exception


def _refused(tangents: Sequence[Any]) -> Refused | None:
    return next((t for t in tangents if t.__class__ is Refused), None)


def unrefused(tangents: Sequence[Any]) -> list[Value | None]:
    """Return these tangents; raise the error of the first rejected one, if there is one."""
    if refused := _refused(tangents):
        raise refused.error
    return list(tangents)


class Forward:
    """The forward sweep; the frame that rules see.

    Args:
      tangents: those of primal values; a value that has none has a zero one.
      kinds: of these values, if they are known.
    """

    linear = False
    record = Op
    width = 1

    def __init__(
        self,
        diff: Differentiation,
        tangents: Mapping[Value, Value],
        kinds: Sequence[Kind] | None = None,
    ) -> None:
        self.diff = diff
        self.active = numbered(tangents)
        self.kinds: Kinds = [*kinds] if kinds else [None] * len(tangents)
        self._tangents: list[Any] = list(tangents.values())  # of the active values
        self._some_refused = any(t.__class__ is Refused for t in self._tangents)
        self.replaced: dict[Value, Value] = {}
        self.pending: list[Any] = []
        self._waiting: list[tuple[Specialized, Reading]] = []

    def primal(self, v: Value) -> Value:
        return v

    def run(self, block: Any) -> list[Value | None]:
        """Emit tangents after the ops of the block; return those of what the block returns."""
        return unrefused(self.sweep(block))

    def rows(self, block: Any) -> list[Row | None]:
        """Return what `run` does, in rows."""
        return [None if t is None else [t] for t in self.run(block)]

    def inside(self, rows: Mapping[Value, Row]) -> Forward:
        """Return the frame of a region, with the tangents of values that it may use."""
        return Forward(self.diff, {v: t for v, (t,) in rows.items() if t is not None})

    def row_types(self, type: Any) -> list[Any]:
        """Return the type of a tangent, in a row."""
        return [type]

    def full(self, row: Row | None, v: Value) -> list[Value]:
        """Return the tangent of a value in a row, zeros if it has none."""
        return [build.instantiate(row and row[0], v)]

    def sweep(self, block: Any) -> list[Value | Refused | None]:
        """Emit tangents as `run` does; rejected ones (`Refused`) may be among those returned."""
        sequence = operations(block)
        find, read = RULES.get, reader(self.active, self.kinds, self, True)
        known, wait = IN_FORWARD.known.get, self._waiting.append
        with build.inserting(None):
            for operation, following in itertools.pairwise(sequence):
                rule = find(operation.name)
                if rule is None:
                    check_known(operation, operation.name, self.active)
                elif rule.reads is None:
                    self._visit(operation, rule, following)
                elif reading := read(operation, rule):
                    special = known(reading[0]) or specialize_forward(reading)
                    if special.function is None and not special.gives:
                        self._forget(reading)
                        if special is UNFIT:
                            self._visit(operation, rule, following)
                    else:
                        wait((special, reading))
                elif reading is None:
                    self._visit(operation, rule, following)
            self._emit(sequence[-1])
        returned = list(sequence[-1].operands)
        self._settle()
        return [self.tangent(v) for v in returned]

    def tangent(self, v: Value) -> Any:
        """Return the tangent of a primal value, as far as the sweep has come."""
        place = self.active.get(v)
        return None if place is None else self._tangents[place]

    @property
    def tangents(self) -> dict[Value, Any]:
        """The tangents of all active values."""
        return dict(zip(self.active, self._tangents, strict=True))

    def _enter(self, v: Value, tangent: Any) -> None:
        self.active[v] = len(self._tangents)
        self._tangents.append(tangent)
        self.kinds.append(None)

    def _forget(self, reading: Reading) -> None:
        """Make the result of the last op inactive again: its tangent is zero."""
        _, place, _, (result, *_), _ = reading
        del self.active[result], self.kinds[place]

    def _emit(self, before: Any) -> None:
        """Emit the deferred tangents, before an op."""
        if not self._waiting:
            return
        tangents, here = self._tangents, build.here
        made: Any = here.made
        some_refused = self._some_refused
        here.ip = ip = ir.InsertionPoint(before)
        with ip:
            for special, (_, _, operation, values, places) in self._waiting:
                function, takes, constants, gives = special
                given = [tangents[i] for i in places if i is not None]
                if some_refused and (refused := _refused(given)):
                    tangents.append(refused)
                elif function is None:
                    tangents.append(given[gives[0]])
                else:
                    here.loc = loc = operation.location
                    given += takes(values)
                    for constant in constants:
                        given.append(made.get(constant) or constant.make(made))
                    tangents += inlined(function, given, loc)
        self._waiting.clear()

    def _visit(self, operation: Any, rule: Rule, following: Any) -> None:
        operands = operands_of(operation)
        if rule.regions:
            operands += captures(operation)
        active = [v in self.active for v in operands]
        if True not in active:
            check_body(operation, rule, self.active)
            return
        op = Op(operation, operands, results_of(operation), active, rule, self)
        if rule.variant is not None:
            build.here.loc = operation.location
            rule = op.rule = rule.variant(op)
        self._emit(operation)
        tangents = list(map(self.tangent, operands))
        if refused := _refused(tangents):
            for r in active_results(op):
                self._enter(r, refused)
            return
        build.here.ip = ir.InsertionPoint(following)
        build.here.loc = operation.location
        found = rule.jvp(op, tangents)
        if rule.checked:
            self._check(op, found)
        for r, t in zip(op.results, found, strict=True):
            if t is not None:
                self._enter(r, t)
                self._some_refused |= t.__class__ is Refused

    @staticmethod
    def _check(op: Op, found: Any) -> None:
        check_count(op, found, len(op.results), "tangent")
        for r, t in zip(op.results, found, strict=True):
            if t is not None and t.__class__ is not Refused:
                check_type(op, t, r.type, "tangent")

    def replace(self, op: Op, new: Sequence[Value]) -> None:
        """Replace the results of an op by new ones, once the sweep over the block is done.

        Until then the old ones stand for them: if a rule returns one of its arguments as a result,
        the two have different tangents.
        """
        self.replaced.update(zip(op.results, new, strict=True))
        self.pending.append(op.operation)

    def _settle(self) -> None:
        """Replace the results of replaced ops, in tangents too: a tangent may be a primal value."""
        if self.replaced:
            self._tangents = [latest(t, self.replaced) for t in self._tangents]
        for old in self.replaced:
            old.replace_all_uses_with(latest(old, self.replaced))
        for operation in self.pending:
            retire(operation)
        self.replaced, self.pending = {}, []


def jvp_in_place(
    diff: Differentiation, name: str, mask: str, instantiate: bool
) -> list[bool | Refused]:
    """Turn (args…) → (outs…) into (args…, tangents…) → (outs…, tangents of outs…).

    With `instantiate`, every inexact result has a tangent. Without, only the results flagged True
    in the returned list have one; a rejected tangent (`Refused`) stands in the list itself.
    """
    function, block = diff.function(name), diff.block(name)
    loc = function.location
    takes, _ = kinds_in(function)
    kinds = masked(takes, mask)
    pairs = zip(masked(block.arguments, mask), kinds, strict=True)
    tangents = {a: block.add_argument(kind.type, loc) for a, kind in pairs}
    found = Forward(diff, tangents, kinds).sweep(block)
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
    set_signature(function, [kind.type for kind in (*takes, *kinds)])
    return flags


def jvp_function(diff: Differentiation, name: str, mask: str) -> tuple[str, list[bool | Refused]]:
    """Return the name of the jvp of @name by masked arguments, and which results have tangents."""

    def derive() -> tuple[str, list[bool | Refused]]:
        new_name = diff.clone_function(name, f"{name}.jvp")
        return new_name, jvp_in_place(diff, new_name, mask, instantiate=False)

    return diff.cached(("jvp", name, mask), derive)
