"""Reverse mode as one direct sweep: cotangents of a block, last op first.

`Reverse` is the frame that rules see. It serves four uses, which differ only in where the backward
ops go and in which values count as active:

- `vjp` in one function: behind the primal ops, which it reaches as they are;
- `vjp` split in two functions: primal values cross as residuals;
- `transpose` of a linear function: the active values are the linear ones, and every op on them must
  be linear;
- the split of a custom_jvp rule into its primal part and the transpose of its linear part.

Ops that have to change in order to give up their residuals (calls, loops, branches) are replaced
while the sweep passes them: all their users have been dealt with by then.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from pullback._errors import NotLinearError
from pullback.dialect import build
from pullback.dialect.build import Value, inexact
from pullback.frontend.locations import user_line
from pullback.passes.activity import analyze
from pullback.passes.checks import check_count, check_type
from pullback.passes.differentiation import Differentiation
from pullback.passes.regions import latest
from pullback.passes.zeros import is_nan, is_zero
from pullback.rules.parts import summed
from pullback.rules.registry import FarOp, InPlace, Op, jointly


def identity(v: Value) -> Value:
    return v


class Gathered:
    """Contributions to a cotangent, some of them in place: they wait until it is asked for.

    Those that do not meet, and so may lie side by side, are known by then.
    """

    __slots__ = ("loc", "places", "type", "value")

    def __init__(self, type: Any, value: Value | None, first: InPlace) -> None:
        self.type = type
        self.value = value
        self.places = [first]
        self.loc = build.here.loc

    def add(self, ct: Value | InPlace) -> None:
        if ct.__class__ is InPlace:
            self.places.append(ct)
        else:
            self.value = build.add(self.value, ct)

    def emit(self) -> Value:
        build.here.loc = self.loc
        return summed(self.value, self.places, self.type)


def _emitted(ct: Value | Gathered | None) -> Value | None:
    return ct.emit() if ct.__class__ is Gathered else ct


class Reverse:
    """The reverse sweep over one block.

    Args:
      diff: the state of the pass.
      primal: maps a value of the primal block to one that backward ops may use.
      linear: transpose: an op that is not linear in its active operands is an error.
    """

    def __init__(
        self, diff: Differentiation, primal: Callable[[Value], Value], linear: bool = False
    ) -> None:
        self.diff = diff
        self.primal = primal
        self.record = Op if primal is identity else FarOp
        self.linear = linear
        self.active: set[Value] = set()
        self.cts: dict[Value, Value] = {}
        self.records: list[Op] = []
        self.replaced: dict[Value, Value] = {}

    def analyze(self, block: Any, active: Sequence[Value]) -> None:
        """Find what is active in `block`, given which values from outside are."""
        self.active = set(active)
        self.records = analyze(block, self.active, self)

    def accumulate(self, v: Value, ct: Value | InPlace | None) -> None:
        """Add to the cotangent of a primal value, if it is active."""
        if ct is not None and v in self.active:
            self._add(v, ct)

    def _add(self, v: Value, ct: Value | InPlace) -> None:
        known = self.cts.get(v)
        if known.__class__ is Gathered:
            known.add(ct)
        elif ct.__class__ is InPlace:
            self.cts[v] = Gathered(v.type, known, ct)
        else:
            self.cts[v] = ct if known is None else build.add(known, ct)

    def run(self) -> None:
        """Emit the cotangents of everything active, at the current place."""
        here, records, known, take = build.here, self.records, self.cts, self.cts.pop
        while records:  # consumed: each refers to this frame, and no cycle shall outlive it
            op = records.pop()
            results, rule = op.results, op.rule
            if len(results) == 1:
                ct = take(results[0], None)
                if ct is None:
                    continue
                cts: Sequence[Any] = (ct.emit() if ct.__class__ is Gathered else ct,)
            else:
                cts = [_emitted(take(r, None)) for r in results]
                if all(ct is None for ct in cts):
                    continue
            here.loc = op.operation.location
            if self.linear:
                self._check_linear(op)
            found = rule.vjp(op, cts)
            if rule.checked:
                self._check(op, found)
            for v, active, ct in zip(op.operands, op.active, found):
                if ct is None or not active:
                    continue
                if v in known or ct.__class__ is InPlace:
                    self._add(v, ct)
                else:
                    known[v] = ct
        self._settle()

    def _settle(self) -> None:
        """Emit what waits; what was replaced before something used it, is so there as well.

        A cotangent may be a primal value: a rule may return a residual.
        """
        for v, ct in self.cts.items():
            self.cts[v] = self.current(_emitted(ct))
        for old in self.replaced:
            old.replace_all_uses_with(self.current(old))

    @staticmethod
    def _check(op: Op, found: Sequence[Any]) -> None:
        check_count(op, found, len(op.operands), "cotangent")
        for v, ct in zip(op.operands, found, strict=True):
            if ct is not None and not isinstance(ct, InPlace):
                check_type(op, ct, v.type, "cotangent")

    def _check_linear(self, op: Op) -> None:
        if not op.rule.linear(op.active):
            raise _not_linear(op, f"`{op.name}` is not linear in its operands")
        if op.rule.linear is jointly and op.rule.family != "control":
            check_no_term(op, range(len(op.operands)), op.name)

    def replace(self, op: Op, new: Sequence[Value]) -> None:
        """Put new results in the place of an op's; the op leaves the block but stays a key."""
        for old, v in zip(op.results, new, strict=True):
            old.replace_all_uses_with(v)
            self.replaced[old] = v
        self.diff.detach(op.operation)

    def current(self, v: Value) -> Value:
        """What stands for a primal value now."""
        return latest(v, self.replaced)

    def assert_carried(self, values: Iterable[Value]) -> None:
        """Asserts that whoever ran the sweep carries on every cotangent, with those of `values`."""
        lost = self.cts.keys() - set(values)
        assert not lost, f"cotangents that nothing carries on: {lost}"


BE_LINEAR = (
    "make the rule (or the function to transpose) linear in its tangents or cotangents: sums of "
    "them times factors that do not depend on them; for an iterative solver, "
    "jax.lax.custom_linear_solve says what it solves"
)


_MARK_WITH_NAN = frozenset({"stablehlo.select", "stablehlo.pad"})
"""JAX puts NaN where the index of a gather is outside, and where a kernel is not to read."""


def check_no_term(op: Op, positions: Sequence[int], name: str) -> None:
    """Raises NotLinearError if one of these operands makes an op affine that is linear in them all.

    `name` is that of what the op computes.
    """
    functions = op.frame.diff.functions
    for i in positions:
        v = op.operands[i]
        if op.active[i] or not inexact(v.type) or is_zero(v, functions):
            continue
        if op.name not in _MARK_WITH_NAN or not is_nan(v, functions):
            why = f"adds a term to it (operand {i}) that does not depend on the input"
            raise _not_linear(op, f"`{name}` {why}")


def check_handed_on(op: Op, v: Value, active: Container[Value], what: str) -> None:
    """Raises NotLinearError if a value that control flow hands on makes a linear op affine.

    `what` names the value in words.
    """
    functions = op.frame.diff.functions
    if v in active or is_zero(v, functions) or is_nan(v, functions):
        return
    raise _not_linear(op, f"{what} of `{op.name}` does not depend on the input and is not zero")


def _not_linear(op: Op, why: str) -> NotLinearError:
    where = user_line(op.operation.location)
    return NotLinearError(f"cannot transpose: {why}", where=where, do=BE_LINEAR)
